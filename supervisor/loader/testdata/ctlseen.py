# Writes one ctl file over another within what a file system's clock may tell apart.
import json, os, sys

import hookonly
from _rsswarden import channel

channel._dir = sys.argv[1]
side = channel.Side()
for budget in (7, 70, 71):
    with open(side._ctl, "w") as file:
        json.dump({"v": 1, "budget": budget, "trim": [], "recycle": []}, file)
    os.utime(side._ctl, ns=(1, 1))
    side.look()
    print(side.budget)
    side.look()
print(side.version)
