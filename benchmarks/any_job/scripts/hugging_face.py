"""A language model with Hugging Face's trainer: hugging_face.py STEPS"""

import sys
import tempfile

import torch
from progress import Progress
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

GPU = torch.cuda.is_available()


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count, length):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        tokens = (torch.arange(self.length) * (index + 1)) % 100
        return {"input_ids": tokens, "labels": tokens}


class Log(TrainerCallback):
    def __init__(self):
        self.progress = Progress()

    def on_step_end(self, args, state, control, **rest):
        self.progress(state.global_step, 0.0)

    def on_train_end(self, args, state, control, **rest):
        self.progress.end()


def main(steps):
    layers, heads, width, length = (6, 8, 512, 128) if GPU else (1, 2, 32, 16)
    config = GPT2Config(
        n_layer=layers, n_head=heads, n_embd=width, vocab_size=1000, n_positions=length
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=8,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            bf16=GPU,
            use_cpu=not GPU,
        )
        data = Tokens(8 * steps, length)
        Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data, callbacks=[Log()]).train()


if __name__ == "__main__":
    main(int(sys.argv[1]))
