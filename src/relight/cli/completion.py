"""Completion for bash, zsh and fish, written from the table; the shells need nothing else installed.

Options are offered until the script has been named, then files. `relightctl` is completed as well.
"""

from __future__ import annotations

from relight.cli.table import OPTIONS, SHELLS, closest, shown
from relight.core.names import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.cli.table import Option

TOOLS = {
    "version": "what is installed",
    "env": "this machine, for a bug report",
    "completion": "completion for a shell",
    "as-torchrun": "runs a command in which torchrun is relight",
}
_PLAIN = ("--help", "--version")  # flags that are no choice and so not in the table


def script(shell: str) -> str:
    """The text to be read by the shell."""
    if shell not in SHELLS:
        meant = closest(shell, SHELLS) or "bash"
        raise UsageError(
            f"there is completion for {', '.join(SHELLS)}, none for {shell}", f"relightctl completion {meant}"
        )
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _with_value() -> list[str]:
    named = [spelling for option in OPTIONS if not option.flag for spelling in option.spellings]
    return [*named, "--print-completion"]


def _words(option: Option) -> str:
    return " ".join(option.choices or option.suggestions)


# --- bash -----------------------------------------------------------------------------------------------------

_BASH = """\
# bash completion for relight and relightctl:  eval "$(relightctl completion bash)"
_relight() {
    local cur=${COMP_WORDS[COMP_CWORD]} option= word i script= module= program=
    local valued=" @VALUED@ "
    COMPREPLY=()
    # bash makes words of its own of `=` and of `:`; `option` is the one whose value is being typed.
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $option ]]; then
            [[ $word == = ]] && continue
            option=
            while [[ ${COMP_WORDS[i + 1]} == : && $((i + 1)) -lt $COMP_CWORD ]]; do ((i += 2)); done
            continue
        fi
        case $word in
            --) script=next; continue ;;
            -m | --module) module=1 ;;
            --no-python | --no_python) program=1 ;;
            -m[rt]) module=1; option=-${word:2:1} ;;
            -*) [[ $valued == *" $word "* ]] && option=$word ;;
            *) return ;;
        esac
        [[ $script ]] && return
    done
    if [[ $option ]]; then
        [[ $cur == = ]] && cur=
        case $option in
@VALUES@
        esac
        return
    fi
    if [[ $cur == -* && ! $script ]]; then
        local words="@DASHED@"
        [[ $cur == *_* ]] && words="@UNDERSCORED@"
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        return
    fi
    compopt -o filenames 2>/dev/null
    if [[ $program ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
    elif [[ ! $module ]]; then
        mapfile -t COMPREPLY < <(compgen -f -X '!*.py' -- "$cur"; compgen -d -- "$cur")
    fi
}
_relightctl() {
    local cur=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "@TOOLS@" -- "$cur"))
    elif [[ ${COMP_WORDS[1]} == completion ]]; then
        COMPREPLY=($(compgen -W "@SHELLS@" -- "$cur"))
    elif [[ ${COMP_WORDS[1]} == env ]]; then
        COMPREPLY=($(compgen -W "--json --help" -- "$cur"))
    fi
}
complete -o default -F _relight relight
complete -o default -F _relightctl relightctl
"""


def _bash() -> str:
    cases = []
    for option in OPTIONS:
        pattern = " | ".join(option.spellings)
        if _words(option):
            cases.append(f'            {pattern}) COMPREPLY=($(compgen -W "{_words(option)}" -- "$cur")) ;;')
        elif option.files == "folder":
            cases.append(
                f"            {pattern}) compopt -o filenames 2>/dev/null; "
                'mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;'
            )
    cases.append(f'            --print-completion) COMPREPLY=($(compgen -W "{" ".join(SHELLS)}" -- "$cur")) ;;')
    short = [option.short for option in OPTIONS if option.short]
    dashed = [*[option.long for option in OPTIONS], *short, *_PLAIN]
    underscored = [option.spellings[-1] for option in OPTIONS]
    return _filled(
        _BASH,
        VALUED=" ".join(_with_value()),
        VALUES="\n".join(cases),
        DASHED=" ".join(dashed),
        UNDERSCORED=" ".join(underscored),
        TOOLS=" ".join(TOOLS),
        SHELLS=" ".join(SHELLS),
    )


# --- zsh ------------------------------------------------------------------------------------------------------

_ZSH = """\
#compdef relight relightctl
# zsh completion for relight and relightctl:  eval "$(relightctl completion zsh)", or a file _relight in fpath
_relight() {
    local curcontext=$curcontext state line
    _arguments -s -S -A '-*' \\
@SPECS@
        '(- *)'{-h,--help}'[help]' \\
        '(- *)--version[version]' \\
        '(- *)--print-completion=[completion for a shell]:shell:(@SHELLS@)' \\
        '1:script:_relight_script' \\
        '*::arguments:_files'
}
_relight_script() {
    if (( ${words[(I)--no[-_]python]} )); then
        _alternative 'commands:command:_command_names' 'files:program:_files -g "*(*)"'
    elif (( ! ${words[(I)-m]} && ! ${words[(I)--module]} )); then
        _files -g '*.py'
    fi
}
_relightctl() {
    if (( CURRENT == 2 )); then
        local -a tools=(@TOOLS@)
        _describe tool tools
    elif [[ $words[2] == completion ]]; then
        compadd @SHELLS@
    elif [[ $words[2] == env ]]; then
        compadd -- --json --help
    else
        _default
    fi
}
if [[ $funcstack[1] == _relight ]]; then
    if [[ $service == relightctl ]]; then _relightctl "$@"; else _relight "$@"; fi
else
    compdef _relight relight
    compdef _relightctl relightctl
fi
"""


def _zsh() -> str:
    specs = []
    for option in OPTIONS:
        line = option.line.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
        names = [f"{name}=" if not option.flag and name.startswith("--") else name for name in option.spellings]
        # A short option takes its value attached or as the next word.
        names = [f"{name}+" if not option.flag and not name.startswith("--") else name for name in names]
        together = "{" + ",".join(names) + "}" if len(names) > 1 else names[0]
        excluded = " ".join(option.spellings)
        metavar = option.metavar.replace(":", "\\:").replace("'", "")
        offered = f"({_words(option)})" if _words(option) else {"folder": "_files -/"}.get(option.files, " ")
        tail = "" if option.flag else f":{metavar}:{offered}"
        specs.append(f"        '({excluded})'{together}'[{line}]{tail}' \\")
    tools = " ".join(f"'{name}:{what}'" for name, what in TOOLS.items())
    return _filled(_ZSH, SPECS="\n".join(specs), SHELLS=" ".join(SHELLS), TOOLS=tools)


# --- fish -----------------------------------------------------------------------------------------------------

_FISH = """\
# fish completion for relight and relightctl:  relightctl completion fish | source
function __relight_script_is_named
    set -l valued @VALUED@ -mr -mt
    set -l value no
    set -l words (commandline -opc)
    for word in $words[2..-1]
        if test $value = yes
            set value no
        else if contains -- $word $valued
            set value yes
        else if not string match -q -- '-*' $word
            return 0
        end
    end
    return 1
end
function __relight_underscored
    # The other spelling of an option is only offered to those who use it.
    string match -qr -- '--[a-z]+_' (commandline -c); and not __relight_script_is_named
end
function __relight_runs_a_program
    set -l words (commandline -opc)
    not __relight_script_is_named; and contains -- --no-python $words
end
function __relight_runs_a_script
    not __relight_script_is_named
end
complete -c relight -f -n __relight_runs_a_script -k -a '(__fish_complete_suffix .py)'
complete -c relight -f -n __relight_runs_a_program -a '(__fish_complete_command)'
complete -c relight -F -n __relight_script_is_named
complete -c relight -f -n 'not __relight_script_is_named' -s h -l help -d 'help'
complete -c relight -f -n 'not __relight_script_is_named' -l version -d 'version'
complete -c relight -x -n 'not __relight_script_is_named' -l print-completion -a '@SHELLS@' -d 'completion'
@SPECS@
@TOOLS@
complete -c relightctl -n '__fish_seen_subcommand_from completion' -f -a '@SHELLS@'
complete -c relightctl -n '__fish_seen_subcommand_from env' -f -l json -d 'as JSON'
"""


def _fish() -> str:
    specs = []
    for option in OPTIONS:
        what = option.line.replace("\\", "\\\\").replace("'", "\\'")
        if option.flag:
            offered = "-f"
        elif _words(option):
            offered = f"-x -a '{_words(option)}'"
        else:
            offered = "-x -a '(__fish_complete_directories)'" if option.files == "folder" else "-x"
        for name in option.spellings:
            typed = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            condition = "__relight_underscored" if "_" in name else "'not __relight_script_is_named'"
            specs.append(f"complete -c relight -n {condition} {typed} {offered} -d '{what}'")
    tools = [
        f"complete -c relightctl -n __fish_use_subcommand -f -a {name} -d {shown(what)}" for name, what in TOOLS.items()
    ]
    return _filled(
        _FISH,
        VALUED=" ".join(_with_value()),
        SPECS="\n".join(specs),
        TOOLS="\n".join(tools),
        SHELLS=" ".join(SHELLS),
    )


def _filled(template: str, **words: str) -> str:
    for name, word in words.items():
        template = template.replace(f"@{name}@", word)
    return template
