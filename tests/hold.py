"""Hold training runs at a step, so that a test catches them there however fast the machine is.

The product's side, with the rules: worker/engine/train/hold.h.

    hold = Hold(folder)           # its env goes to the ranks, or to their agent
    hold.at(20)                   # before the job is there: it does 20 steps and waits
    ...                           # what is to happen to it while it runs
    hold.at(40), hold.release()   # it goes on to the next point, and then to its end
"""
import contextlib
import os


START = "start"


class Hold:
    def __init__(self, folder):
        self.folder = folder
        self.env = {"MUSTER_HOLD": folder}
        os.makedirs(folder, exist_ok=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def at(self, step, name="small"):
        """Jobs of this name do so many steps and wait; those that wait earlier go on to it. START: their next runs wait
        before they read their state."""
        new = self.path(f".{name}")
        with open(new, "w", encoding="ascii") as f:
            f.write(f"{step}\n")
        os.rename(new, self.path(name))

    def release(self, name="small"):
        """They run to their end."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))
