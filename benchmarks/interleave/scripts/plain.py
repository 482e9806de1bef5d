"""One of the jobs as anybody would write it: plain.py KIND STEPS FOLDER

KIND only names it: what a step does is in variables `UNITS_...`, as `work.py` reads them.
"""

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "any_job" / "scripts"))
from progress import Progress
from work import DEVICE, Net, Steps

torch.set_num_threads(1)
torch.manual_seed(0)
steps = int(sys.argv[2])
net = Net().to(DEVICE)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
progress = Progress()
for step, scale in enumerate(DataLoader(Steps(sys.argv[3], steps), batch_size=1), 1):
    optimizer.zero_grad()
    loss = net(scale)
    loss.backward()
    optimizer.step()
    progress(step, loss.detach())
progress.end()
