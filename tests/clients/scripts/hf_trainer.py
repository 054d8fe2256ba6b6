"""Hugging Face Trainer on a tiny GPT-2 that is made here, carrying on from its newest checkpoint."""

# As users write it, without types.
# mypy: ignore-errors

import os
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Sums(torch.utils.data.Dataset):
    """Sequences that count upwards: easy to learn, and the same for everyone."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = (torch.arange(16) + index) % 32
        return {"input_ids": tokens, "labels": tokens}


class Say(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in (logs or {}):
            print(f"step {state.global_step} loss {float(logs['loss']):.4f}")

    def on_save(self, args, state, control, **more):
        print(f"saved at step {state.global_step}")


def main():
    output, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    args = TrainingArguments(
        output_dir=output,
        max_steps=steps,
        per_device_train_batch_size=8,
        learning_rate=5e-3,
        logging_steps=5,
        save_steps=10,
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        seed=0,
    )
    trainer = Trainer(model=model, args=args, train_dataset=Sums(), callbacks=[Say()])
    os.makedirs(output, exist_ok=True)
    newest = get_last_checkpoint(output)
    print(f"world {args.world_size} process {args.process_index} mode {args.parallel_mode.name} from {newest}")
    trainer.train(resume_from_checkpoint=newest)
    print(f"finished at step {trainer.state.global_step}")


if __name__ == "__main__":
    main()
