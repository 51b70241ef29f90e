"""A job at a shell, written as its transcript: each command is run, and what it says and how it ends is compared."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from doc_examples import Block, commands, difference

from running import run_program

ENDING = re.compile(r"^\[(\d+)\]$")


class Shell:
    """A folder and an environment in which commands are run, each in a process of its own."""

    def __init__(self, folder, **environment):
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "COLUMNS": "200", **environment}
        self.ran = []

    def follow(self, transcript):
        """Run each `$ command`; hold what it printed against what stands below it, and its exit code against `[code]`.

        `...` stands for anything; where no code is given it is 0.
        """
        for command in commands(Block("journey", 1, "console", transcript.strip())):
            *said, last = command.shown.splitlines() or [""]
            ending = ENDING.match(last)
            code, output = self.run(command.text)
            assert code == (int(ending[1]) if ending else 0), f"$ {command.text}\n{output}\n[{code}]"
            assert "Traceback" not in output, output
            wrong = difference("\n".join(said) if ending else command.shown, output)
            assert wrong is None, f"$ {command.text}\n{wrong}"

    def run(self, line):
        """Return the exit code of a command line and all that it printed."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = run_program("bash", "-c", f"{line}\nexit $?", cwd=self.folder, env=self.environment, **streams)
        self.ran.append(line)
        return done.returncode, done.stdout

    def json(self, name):
        """Return what a command printed as JSON into a file."""
        return json.loads((self.folder / name).read_text("utf-8"))

    def text(self, name):
        """Return the text of a file."""
        return (self.folder / name).read_text("utf-8")
