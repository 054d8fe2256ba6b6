"""One worker on a GPU with NCCL. In its first round it takes memory and kills itself; the next round finds it free."""

# As users write it, without types.
# mypy: ignore-errors

import os
import signal

import torch
import torch.distributed as dist

GIB = 1 << 30

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
free, total = torch.cuda.mem_get_info()
print(f"free before {free / GIB:.2f} GiB", flush=True)
dist.init_process_group("nccl", device_id=device)
ones = torch.ones(1000, device=device)
dist.all_reduce(ones)
print(f"{dist.get_world_size()} workers, sum {ones[0].item():g}", flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    held = torch.ones(free // 2, dtype=torch.uint8, device=device)
    torch.cuda.synchronize()
    print(f"free while held {torch.cuda.mem_get_info()[0] / GIB:.2f} GiB", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
