"""The scripts of this package, their arguments and their replies."""

import json
from pathlib import Path
from types import SimpleNamespace

CONTRACT = 1  # the version of lua/README.md that this package implements
FOLDER = Path(__file__).parent / "lua"


class Scripts:
    """The scripts in a folder, by their names in its manifest. `client`: of `redis` or of `redis.asyncio`."""

    def __init__(self, client, folder=FOLDER):
        manifest = json.loads(Path(folder, "manifest.json").read_text("utf-8"))
        if manifest["contract"] != CONTRACT:
            accepted = f"contract {CONTRACT}. Use the folder lua/ that belongs to this package"
            raise ValueError(f"{folder}: got contract {manifest['contract']}. Accepted: {accepted}")
        self.manifest = manifest["scripts"]
        # A registered script is called with EVALSHA, and loaded if the server does not have it.
        self.run = {}
        for name, script in self.manifest.items():
            self.run[name] = client.register_script(Path(folder, script["file"]).read_bytes())
            if self.run[name].sha != script["sha1"]:
                why = f"the SHA-1 of {script['file']} differs from the manifest. Copy the folder lua/ again, byte for byte"
                raise ValueError(f"{name}: {why}")

    def argv(self, name, arguments):
        """The arguments of a call, in the order of the manifest. The last ones may be left out."""
        names = self.manifest[name]["argv"]
        needed = len(names) - self.manifest[name].get("optional", 0)
        return [arguments[name] for name in names if name in arguments or name in names[:needed]]

    def reply(self, name, values):
        """A reply: its `word`, and its fields by name."""
        word, *fields = values
        word = text(word)
        return SimpleNamespace(word=word, **dict(zip(self.manifest[name]["replies"][word], fields)))


def text(value):
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
