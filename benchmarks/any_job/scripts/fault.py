"""A script with a mistake that ends the GPU's work: fault.py SECONDS of good steps before it"""

import sys
import time

import torch

weight = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
began = time.time()
while time.time() - began < float(sys.argv[1]):
    optimizer.zero_grad()
    weight.square().sum().backward()
    optimizer.step()
    torch.cuda.synchronize()
print("about to fail", flush=True)
torch.zeros(4, device="cuda")[torch.tensor([10**9], device="cuda")]
torch.cuda.synchronize()
