"""The same with `weft.train`, which asks for a token for each stage: told.py KIND STEPS FOLDER

Fetching asks for the token of the job's own bottleneck, the rest for its GPU's.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "any_job" / "scripts"))
from progress import Progress
from work import Net, Steps

import weft.train as wt

TOKENS = {"storage": "io", "decode": "cpu", "copy": "net", "compute": "io"}

torch.set_num_threads(1)
job = wt.init(report_every_s=0.5)
torch.manual_seed(0)
net = Net()
net, optimizer = job.wrap(net, torch.optim.SGD(net.parameters(), 0.01), scaling="none")
data = Steps(sys.argv[3], int(sys.argv[2]))
loader = job.loader(data, 1, shuffle=False, stage=TOKENS[sys.argv[1]])
progress = Progress()
for _ in job.epochs(1):
    for step, scale in enumerate(loader, 1):
        with job.step():
            loss = net(scale)
            job.backward(loss)
        progress(step, loss.detach())
progress.end()
