"""The same with `weft_train`, which asks for a token for each stage: told.py KIND STEPS FOLDER

KIND only names it, as for `plain.py`.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "any_job" / "scripts"))
from progress import Progress
from work import Net, Steps

import weft_train as wt

torch.set_num_threads(1)
job = wt.init(report_every_s=0.5)
torch.manual_seed(0)
net = Net()
net, optimizer = job.wrap(net, torch.optim.SGD(net.parameters(), 0.01), scaling="none")
data = Steps(sys.argv[3], int(sys.argv[2]), whole=False)
loader = job.loader(data, 1, shuffle=False, stage="io")
progress = Progress()
for _ in job.epochs(1):
    for step, scale in enumerate(loader, 1):
        with job.stage("cpu"):
            data.decode_all()
        with job.stage("net"):
            data.copy_all()
        with job.step():
            loss = net(scale)
            job.backward(loss)
        progress(step, loss.detach())
progress.end()
