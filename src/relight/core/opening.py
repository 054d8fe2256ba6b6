"""How a conversation between two agents begins: who is there, for which job, and proof that both know its token.

    caller    relight/1                              the protocol and its version, in plain bytes
    door      relight/1, then {nonce, token?}        asks for proof
    caller    {job, release, host, life, nonce, proof, ...}
    door      {name, proof, ...}                     or {refused, try}

Each side proves that it knows the token by an HMAC over both nonces and the job's name, so neither a listener nor
somebody in between can use what it heard a second time. Without a token there is nothing to prove. Anything else that
may stand at a port (a torchrun agent, a web server, another version) is told apart by its first bytes, and named.
"""

from __future__ import annotations

import hashlib
import hmac

from relight.core.failure import shorten
from relight.core.frames import LINE, Frames, cut, frame
from relight.core.names import Nonsense
from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from relight.core.frames import Fields

VERSION = 1
WORD = b"relight/"
MAGIC = WORD + b"%d\n" % VERSION
LONGEST = 20  # bytes of the first line
NONCE = 64  # characters
NAME = 300
OPTIONS = 40  # how many options a node may tell of, and how long each may be
OPTION = 300
SHORTEST_LEASE_S = 0.01  # what is less would be a heartbeat without pause


@value
class Caller:
    """Who calls: what a node says of itself before it is let in."""

    job: str
    release: str
    host: str  # what its machine calls itself
    life: str  # which start of its agent speaks
    door: int = 0  # the port at which its agent listens as long as it lives; 0: it does not listen
    options: tuple[tuple[str, str], ...] = ()  # what all nodes of a job have to agree on


@value
class Terms:
    """On which terms a node is let in."""

    name: str  # what it is called in this job
    lease_s: float


class Refused(Exception):
    """The other side will not talk to us, or we to it. `remedy` says what to do; `final`: trying again is no use."""

    def __init__(self, what: str, remedy: str = "", *, final: bool = True) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.final = final


class FirstLine:
    """Waits for the first line of the other side, whatever it is that speaks there."""

    def __init__(self) -> None:
        self._rest = b""
        self.heard = False

    def received(self, chunk: bytes) -> bytes | None:
        """What came behind the first line; None as long as that is not whole. Raises Refused if it is not ours."""
        if self.heard:
            return chunk
        said = self._rest + chunk
        line, end, rest = said.partition(b"\n")
        if not WORD.startswith(said[: len(WORD)]) or len(line) > LONGEST:
            raise Refused(_stranger(said))
        if not end:
            self._rest = said
            return None
        if line + end != MAGIC:
            theirs = line[len(WORD) :].decode(errors="backslashreplace")
            raise Refused(
                f"it speaks version {theirs} of relight's protocol, and this is version {VERSION}",
                "the same release of relight on every node",
            )
        self.heard = True
        return rest

    def ended(self) -> Refused:
        """The connection was closed before the first line was whole."""
        return Refused("it closed the connection without a word, as a torchrun agent's store does", final=False)


def _stranger(said: bytes) -> str:
    if said[:1] == b"\0":
        return "it speaks torch's TCPStore protocol: a torchrun agent, or a worker of another job"
    if said[:2] == b"\x16\x03":
        return "it speaks TLS, and this side does not"
    if said.split(b" ")[0] in (b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS") or said.startswith((b"HTTP/", b"<")):
        return "it speaks HTTP"
    return f"it is not relight: its first bytes are {said[:16]!r}"


class Doorway:
    """The door's side of one connection, until the caller is let in or turned away."""

    def __init__(self, job: str, token: bytes, nonce: str) -> None:
        self._job = job[:LINE]
        self._token = token
        self._nonce = nonce
        self._first = FirstLine()
        self._frames = Frames()
        self._theirs: str | None = None

    def received(self, chunk: bytes) -> tuple[bytes, Caller | None]:
        """What to answer, and who calls once that is known. Raises Refused or Nonsense."""
        knew = self._first.heard
        rest = self._first.received(chunk)
        if rest is None:
            return b"", None
        answer = b"" if knew else MAGIC + frame({"nonce": self._nonce, "token": bool(self._token)})
        said = self._frames.received(rest)
        if len(said) > 1:
            raise Nonsense("something said before it was let in")
        return answer, self._read(said[0]) if said else None

    def let_in(self, terms: Terms) -> bytes:
        """The last word of the opening."""
        assert self._theirs is not None, "it has introduced itself"
        proof = _proof(self._token, "door", self._nonce, self._theirs, self._job)
        return frame({"name": terms.name, "lease_s": terms.lease_s, "proof": proof})

    def _read(self, said: Fields) -> Caller:
        self._theirs = said.word("nonce", NONCE)
        job = said.word("job")
        if not _is_proven(said, _proof(self._token, "caller", self._nonce, self._theirs, job)):
            raise Refused("its token is not this job's", "the same RELIGHT_TOKEN or --token-file on every node")
        if job != self._job:  # only who knows the token is told what this job is called
            raise Refused(
                f"here is job {shorten(self._job)!r}, and it asks for job {shorten(job)!r}",
                f"--rdzv-id {self._job}, or another port for the other job",
            )
        options = said.texts("options", 2 * OPTIONS, OPTION)
        try:
            pairs = tuple(zip(options[::2], options[1::2], strict=True))
        except ValueError:
            raise Nonsense("options that are no pairs") from None
        host, life = said.word("host", 255), said.word("life", 100)
        host = host if host.isprintable() else "node"  # it is shown on terminals
        return Caller(job, said.text("release", 50), host, life, said.whole("door", 0, 65535), pairs)


def refusal(refused: Refused) -> bytes:
    """What is said to somebody who is turned away."""
    return frame({"refused": cut(refused.what), "try": cut(refused.remedy), "final": refused.final})


class Call:
    """The caller's side of one connection, until it is let in."""

    def __init__(self, caller: Caller, token: bytes, nonce: str) -> None:
        self._caller = caller
        self._job = caller.job[:LINE]
        self._token = token
        self._nonce = nonce
        self._first = FirstLine()
        self._frames = Frames()
        self._theirs: str | None = None

    @staticmethod
    def begin() -> bytes:
        """The first bytes of the call."""
        return MAGIC

    def received(self, chunk: bytes) -> tuple[bytes, Terms | None]:
        """What to answer, and the terms once there are any. Raises Refused or Nonsense."""
        rest = self._first.received(chunk)
        answer = b""
        for said in self._frames.received(rest) if rest is not None else ():
            if "refused" in said:
                raise Refused(said.text("refused"), said.text("try"), final=said.flag("final"))
            if self._theirs is not None:
                return answer, self._terms(said)
            answer = self._introduction(said)
        return answer, None

    def ended(self) -> Refused:
        """The connection was closed before we were let in."""
        if self._first.heard:
            return Refused("it closed the connection while we introduced ourselves", final=False)
        return self._first.ended()

    def _introduction(self, said: Fields) -> bytes:
        caller = self._caller
        self._theirs = said.word("nonce", NONCE)
        if said.flag("token") != bool(self._token):
            if self._token:
                raise Refused("it knows no token, and this node has one", "the same token there, or none here")
            raise Refused("it asks for the job's token, and this node has none", "RELIGHT_TOKEN=..., or --token-file")
        return frame(
            {
                "job": self._job,
                "release": caller.release,
                "host": caller.host,
                "life": caller.life,
                "door": caller.door,
                "options": [word[:OPTION] for option in caller.options[:OPTIONS] for word in option],
                "nonce": self._nonce,
                "proof": _proof(self._token, "caller", self._theirs, self._nonce, self._job),
            }
        )

    def _terms(self, said: Fields) -> Terms:
        assert self._theirs is not None
        if not _is_proven(said, _proof(self._token, "door", self._theirs, self._nonce, self._job)):
            raise Refused("it does not know the job's token", "another port: somebody else answers at this one")
        return Terms(said.word("name", NAME), said.number("lease_s", SHORTEST_LEASE_S))


def _proof(token: bytes, who: str, door: str, caller: str, job: str) -> str:
    """What only somebody with the token can say, and only in this one conversation."""
    if not token:
        return ""
    said = "\0".join(("relight", who, door, caller, job)).encode(errors="surrogatepass")
    return hmac.new(token, said, hashlib.sha256).hexdigest()


def _is_proven(said: Fields, proof: str) -> bool:
    return not proof or hmac.compare_digest(proof.encode(), said.text("proof").encode())


def differences(ours: Mapping[str, str], theirs: tuple[tuple[str, str], ...]) -> list[str]:
    """The options in which a node differs from its job, each as `--nnodes 4 (here 2)`."""
    told = dict(theirs)
    return [
        f"{name} {told.get(name, 'nothing')} (here {word})" for name, word in ours.items() if told.get(name) != word
    ]
