"""Runs every case against every server and prints the table of results. See run.sh."""

import argparse
import http.client
import os
import sys
import tempfile

import cases
import servers

YES, NO, LACKS = "yes", "NO", "-"


def judge(function, server, directory):
    try:
        function(server, directory)
    except servers.Lacks as e:
        return LACKS, f"lacks {e}"
    # A failure that a client would meet is a no; any other exception is a bug of ours, and ends the run.
    except (AssertionError, servers.Refused, OSError, http.client.HTTPException) as e:
        return NO, f"{type(e).__name__}: {e}"[:300]
    return YES, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bellhopd", required=True)
    parser.add_argument("--sandbox-agent", required=True)
    parser.add_argument("--codex", required=True)
    parser.add_argument("cases", nargs="*", help="names of cases, or parts of them; default: all")
    args = parser.parse_args()
    chosen = [c for c in cases.ALL if not args.cases or any(part in c[1] for part in args.cases)]
    if not chosen:
        sys.exit("no case has such a name")

    with tempfile.TemporaryDirectory(prefix="conformance-") as top:
        os.chmod(top, 0o755)
        makers = ((servers.Bellhop, args.bellhopd), (servers.SandboxAgent, args.sandbox_agent),
                  (servers.Codex, args.codex))
        verdicts = {make.name: run(make, os.path.abspath(program), chosen, top) for make, program in makers}

    names = list(verdicts)
    print(f"\n{'':54}" + "".join(f"{n:>15}" for n in names))
    for i, (area, title, _) in enumerate(chosen):
        print(f"{area + ': ' + title:54}" + "".join(f"{verdicts[n][i][0]:>15}" for n in names))
    totals = {n: sum(v[0] == YES for v in verdicts[n]) for n in names}
    print(f"{'':54}" + "".join(f"{f'{totals[n]} of {len(chosen)}':>15}" for n in names))
    print("\nwhy not:")
    for n in names:
        for (_, title, _), (verdict, why) in zip(chosen, verdicts[n]):
            if verdict != YES:
                print(f"  {n}: {title}: {why}")
    sys.exit(0 if totals["bellhop"] == len(chosen) else 1)


def run(make, program, chosen, top):
    server = make(program, os.path.join(top, make.name))
    verdicts = []
    try:
        for i, (_, title, function) in enumerate(chosen):
            directory = os.path.join(top, f"{make.name}-{i}")
            os.mkdir(directory)
            os.chmod(directory, 0o777)
            verdicts.append(judge(function, server, directory))
            if sys.stderr.isatty():
                print(f"\r{make.name}: {i + 1} of {len(chosen)}", end="", file=sys.stderr, flush=True)
    finally:
        print(f"\r{make.name}: {len(verdicts)} cases run", file=sys.stderr)
        server.stop()
        leave_nothing()
    return verdicts


def leave_nothing():
    """Ends commands that a server has left behind: each sleeps for a time that no other uses."""
    for number in range(77001, 77008):
        while (pid := cases.alive(str(number))) is not None:
            os.kill(pid, 9)


if __name__ == "__main__":
    main()
