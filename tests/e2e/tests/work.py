"""Real work, as agents do it, by way of the Python client, inside a real microVM.

Run by `work.rs` with the server in SPACE_URL and SPACE_API_KEY. Prints a line for each piece of work.
"""

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from space_sandbox import Sandbox, Space

PRIMES = """
#include <stdio.h>
int main(void) {
    int found = 0;
    for (int n = 2; found < 1000; n++) {
        int prime = 1;
        for (int d = 2; d * d <= n && prime; d++) prime = n % d != 0;
        if (prime && ++found == 1000) printf("%d\\n", n);
    }
    return 0;
}
"""

CLONE = """
set -e
git config --global user.email agent@example.test
git config --global user.name agent
git init -q -b main origin
cd origin
for n in 1 2 3; do echo "$n" > file; git add file; git commit -qm "change $n"; done
cd ..
git daemon --reuseaddr --export-all --base-path="$PWD" --listen=127.0.0.1 --detach --pid-file=git.pid
git clone -q git://127.0.0.1/origin copy
kill "$(cat git.pid)"
git -C copy log --format=%s
"""

SIZE = 8 << 20

#: Where `space up` has its edge, under names that no resolver of this host knows.
EDGE = "http://127.0.0.1:8710/"
LISTENING = "curl -s -o /dev/null --retry 60 --retry-delay 1 --retry-connrefused http://127.0.0.1:8000"


def compile_and_run(sandbox: Sandbox) -> None:
    sandbox.files.write("primes.c", PRIMES)
    result = sandbox.run("cc -O2 -Wall -o primes primes.c && ./primes", check=True)
    assert result.stdout == "7919\n", result


def clone(sandbox: Sandbox) -> None:
    result = sandbox.run(CLONE, check=True)
    assert result.stdout == "change 3\nchange 2\nchange 1\n", result


def standard_input(sandbox: Sandbox) -> None:
    with sandbox.start(["python3", "-c", "print(sum(map(int, input().split())))"], stdin=True) as command:
        command.stdin.write("20 22\n")
        command.stdin.close()
        assert command.wait().stdout == "42\n"


def files_both_ways(sandbox: Sandbox) -> None:
    data = os.urandom(SIZE)
    with tempfile.TemporaryDirectory() as directory:
        there, back = os.path.join(directory, "there"), os.path.join(directory, "back")
        with open(there, "wb") as file:
            file.write(data)
        sandbox.files.upload(there, "blob")
        told = sandbox.run("sha256sum blob", check=True).stdout.split()[0]
        assert told == hashlib.sha256(data).hexdigest()
        sandbox.files.download("blob", back)
        with open(back, "rb") as file:
            assert file.read() == data


def terminal(sandbox: Sandbox) -> None:
    with sandbox.terminal(["bash", "--norc"], rows=30, columns=90) as shell:
        shell.write("tty; stty size\n")
        assert "/dev/pts/" in shell.read_until("30 90\r\n", 60)
    # Left, and found again as it was.
    with sandbox.attach(shell.id, after=shell.position) as shell:
        shell.resize(50, 132)
        shell.write("until stty size | grep '50 132'; do sleep 0.1; done; exit 7\n")
        result = shell.wait(60)
    assert result.exit_code == 7 and "50 132\r\n" in result.stdout, result


def port(sandbox: Sandbox) -> None:
    sandbox.files.write("www/index.html", "hello\n", parents=True)
    with sandbox.start(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1", "-d", "www"]) as server:
        sandbox.run(LISTENING, check=True)
        token = sandbox.ports.create_token(8000)
        assert ask(token.url, {}) == (401, b"")
        assert ask(token.url, {token.header: token.token or ""}) == (200, b"hello\n")
        server.kill()
        server.wait(60)


def ask(url: str, headers: dict[str, str]) -> tuple[int, bytes]:
    request = urllib.request.Request(EDGE, headers={"Host": urlsplit(url).netloc, **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, b""


def cpythons_own_tests(sandbox: Sandbox) -> None:
    result = sandbox.run(["python3", "-m", "test", "-q", "test_json", "test_io"])
    assert result.exit_code == 0 and "SUCCESS" in result.stdout + result.stderr, result


def main() -> None:
    with Space() as space, space.create(vcpus=1, memory_mib=256, disk_mib=1024) as sandbox:
        for work in (compile_and_run, clone, standard_input, files_both_ways, terminal, port, cpythons_own_tests):
            work(sandbox)
            print(work.__name__, flush=True)


if __name__ == "__main__":
    main()
