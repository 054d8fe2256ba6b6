"""Files and console lines: -r, -t, maps, filters, prefixes, /dev/null, folders."""

from __future__ import annotations

from .making import ABSENT, Difference, accepted, case

L = "--log-dir @LOGS@"
TWO = f"--nproc-per-node 2 {L}"
WORDS = "me.all_here()\nfor word in ('alpha', 'beta, gamma', 'loss=1'):\n    me.say(word)\n    me.tell(word)\n"
ODD = "sys.stdout.buffer.write(%r)\nsys.stdout.flush()\n"
TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
WHOLE = {"stdout": Difference("whole-lines", ["[default0]:~0 whole", "[default0]:~0 rest"])}
IN_PARTS = {
    "stdout": Difference("whole-lines", ["[default0]:~0 one word", "[default0]:~0 two"]),
    "logs/*/filtered_stdout.log/lines": Difference("whole-lines", ["", "[default0]:~0 one word", "[default0]:~0 two"]),
}
BYTES = {"stdout": Difference("bytes", ["[default0]:~0 \\xff\\xfe end"])}
BAR = {"stdout": Difference("carriage-returns", ["[default0]:~0 done"])}
RETURNS = {"stdout": Difference("carriage-returns", ["[default0]:~0 one\r", "[default0]:~0 two\r"])}
NO_FILTERED = {"logs/*/filtered_stdout.log/*": Difference("no-empty-filtered-file", ABSENT)}
ABSOLUTE = {
    "world/*/env/TORCHELASTIC_ERROR_FILE": Difference(
        "absolute-error-file", lambda first, second: second == f"<run>/work/{first}"
    )
}
NEWER = {
    "exit": Difference("newer-torchrun", [0]),
    "manner/usage": Difference("newer-torchrun", False),
    "stdout": Difference("newer-torchrun", ["x0:~0 hello"]),
    "stderr": Difference("newer-torchrun", ["~0 hello on stderr"]),
    "world/*": Difference("newer-torchrun", lambda first, _: first is ABSENT),
    "logs/*": Difference("newer-torchrun", lambda first, _: first is ABSENT),
}

CASES = [
    case("a log folder without streams", f"{L} plain.py"),
    *(case(f"redirects {n}", f"-r {n} {TWO} plain.py") for n in range(4)),
    *(case(f"tee {n}", f"-t {n} {TWO} plain.py") for n in (1, 2, 3)),
    case("--redirects=3", f"--redirects=3 {L} plain.py"),
    case("--tee=3", f"--tee=3 {L} plain.py"),
    case("redirects and tee", f"-r 2 -t 1 {L} plain.py"),
    case("tee beats redirects", f"-r 3 -t 3 {L} plain.py"),
    case("redirect map", f"-r 0:1,1:2 {TWO} plain.py"),
    case("tee map", f"-t 1:3 {TWO} plain.py"),
    case("redirects with a tee map", f"-r 3 -t 0:1 {TWO} plain.py"),
    case("map beyond the workers", f"-r 0:3,7:3 {TWO} plain.py"),
    case("filter one rank", f"--local-ranks-filter 0 {TWO} plain.py"),
    case("filter two ranks", f"--local_ranks_filter=0,2 --nproc-per-node 3 {L} plain.py"),
    case("filter and tee", f"--local-ranks-filter=1 -t 3 {TWO} plain.py"),
    case("filter and redirects", f"--local-ranks-filter=1 -r 1 {TWO} plain.py"),
    case("filter beyond the workers", f"--local-ranks-filter=5 {TWO} plain.py"),
    case("duplicate stdout", f"-t 3 --duplicate-stdout-filters=alpha,loss {TWO} job.py", WORDS),
    case("duplicate_stderr", f"-t 3 --duplicate_stderr_filters=alpha {TWO} job.py", WORDS),
    case("duplicate with a comma", f"-t 3 '--duplicate-stdout-filters=beta,, ga' {TWO} job.py", WORDS),
    case("duplicate both", f"-t 3 --duplicate-stdout-filters=a --duplicate-stderr-filters=b {TWO} job.py", WORDS),
    case("duplicate without tee", f"-r 3 --duplicate-stdout-filters=alpha {TWO} job.py", WORDS, differs=NO_FILTERED),
    case("duplicate and filter", f"-t 3 --local-ranks-filter=0 --duplicate-stdout-filters=a {TWO} job.py", WORDS),
    case(
        "duplicate of lines that come in parts",
        f"-t 3 --duplicate-stdout-filters= {L} job.py",
        "for part in (b'~0 on', b'e word', b'\\n~0 two\\n'): os.write(1, part); time.sleep(0.3)\n",
        differs=IN_PARTS,
    ),
    case("duplicate of what nobody says", f"-t 3 --duplicate-stdout-filters=zeta {L} job.py", WORDS),
    case("prefix template", f"-t 3 {TWO} plain.py", env={TEMPLATE: "<${role_name}|${rank}/$local_rank>"}),
    case("prefix with dollars", f"-t 3 {L} plain.py", env={TEMPLATE: "$$ ${other} $rank: "}),
    case("empty prefix", f"-t 3 {L} plain.py", env={TEMPLATE: ""}),
    case("prefix template without tee", f"{L} plain.py", env={TEMPLATE: "[$rank]"}),
    case("prefix option of 2.14", f"--log-line-prefix-template x$rank: -t 1 {L} plain.py", differs=NEWER),
    case("/dev/null", "--log-dir /dev/null plain.py"),
    case("/dev/null with tee", "--log-dir /dev/null -t 3 --nproc-per-node 2 plain.py"),
    case("/dev/null with redirects", "--log-dir=/dev/null -r 3 plain.py"),
    case("relative folder", "--log-dir logdir -r 3 plain.py", differs=ABSOLUTE),
    case("folder to be made", "--log_dir @LOGS@/a/b -r 1 plain.py"),
    case("no folder given, redirects", "-r 3 plain.py"),
    case("no folder given, tee", "-t 3 plain.py"),
    case("two runs in one folder", f"-r 1 {L} plain.py", runs=2),
    case(
        "run id names the folder", f"-r 1 {L} --rdzv-backend c10d --rdzv-endpoint localhost:0 --rdzv-id nice plain.py"
    ),
    case("static names the folder none", f"-r 1 {L} --master-port @PORT@ plain.py"),
    accepted(
        "run id with a slash",
        f"-r 1 {L} --rdzv-backend c10d --rdzv-endpoint localhost:0 --rdzv-id a/b plain.py",
        "run-id-with-slash",
        differs={"logs/*": Difference("run-id-with-slash", lambda first, _: first is ABSENT)},
    ),
    case("last line without its end", f"-t 1 {L} job.py", ODD % b"~0 whole\n~0 rest", differs=WHOLE),
    case("bytes that are no text", f"-t 1 {L} job.py", ODD % b"~0 \xff\xfe end\n", differs=BYTES),
    case("bytes that are no text, redirected", f"-r 1 {L} job.py", ODD % b"~0 \xff\x00\xfe\n"),
    case("empty lines", f"-t 1 {L} job.py", ODD % b"\n~0 a\n\n\n~0 b\n"),
    case("progress bar in the file", f"-r 2 {L} job.py", "sys.stderr.write('~0 1%\\r~0 2%\\r~0 done\\n')"),
    case("a long line", f"-t 1 {L} job.py", "me.say('x' * 200_000)"),
    case("many lines", f"-t 1 {L} job.py", "for n in range(3000): print('~0', n)"),
    case("nothing said", f"-t 3 {L} job.py", "pass"),
    case("carriage return on the console", f"-t 1 {L} job.py", ODD % b"~0 1%\r~0 2%\r~0 done\n", differs=BAR),
    case("windows line ends", f"-t 1 {L} job.py", ODD % b"~0 one\r\n~0 two\r\n", differs=RETURNS),
    case("unprefixed output passes as it is", "job.py", ODD % b"~0 a\r~0 b\x1b[1m\n~0 rest"),
]
