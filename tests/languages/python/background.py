"""background.py: the work in the background for one release is the same with many held permits as with few."""

import sys

from luagate import clock
from luagate.agenda import Agenda, Release
from luagate.held import Held
from replies import NOW, Forger, settings_of

RENEWED = settings_of("renewed", auto_renew=True)
FEW, MANY = 10, 1_000


def calls_of_functions(held):
    """How many functions are called for a release while this number of permits is held."""
    session = Forger([[b"released", 1, 0, 1]])
    agenda: Agenda = session.agenda
    loop = agenda.loop()
    next(loop)

    def turn():
        loop.send(None if agenda.mailbox.empty() else agenda.mailbox.get())

    for number in range(held):
        agenda.add(Held(RENEWED, str(number), 0, 1, 5, 1, NOW, clock.now() + 60))
    while not agenda.mailbox.empty():
        turn()
    release, count = Release(RENEWED, "released", clock.now() + 60, False), 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    agenda.release(release, None)
    while not release.is_done:
        turn()
    sys.setprofile(None)
    return count


few, many = calls_of_functions(FEW), calls_of_functions(MANY)
print(f"{few} calls with {FEW} permits, {many} with {MANY}")
sys.exit(many > 2 * few)
