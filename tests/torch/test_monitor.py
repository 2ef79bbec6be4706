"""What a `Monitor` hands to a logger."""

import pytest
import torch

from npgm.torch import NGD, SNGD, Monitor


def logged(optimizer, steps, **options):
    lines = []
    monitor = Monitor(optimizer, lambda *line: lines.append(line), **options)
    for _ in range(steps):
        optimizer.step()
    return monitor, lines


def test_each_group_of_each_step_that_is_due():
    ps = [torch.ones(3) for _ in range(3)]
    ps[0].grad, ps[2].grad = torch.full((3,), 2.0), torch.full((3,), 4.0)
    optimizer = SNGD([{"params": [p], "lr": 0.1 * (k + 1)} for k, p in enumerate(ps)], 0.1, scale=2.0)
    monitor, lines = logged(optimizer, 5, every=2, step=3)
    names = ["lr", "saturation", "input_norm", "output_norm", "scale"]
    want = [(f"npgm/{k}/{name}", step) for step in (4, 6, 8) for k in (0, 2) for name in names]
    assert [(name, step) for name, _, step in lines] == want
    values = [0.1, 0.5, 2 * 3**0.5, 0.5 * 3**0.5, 2.0, 0.3, 2 / 3, 4 * 3**0.5, 3**0.5 * 2 / 3, 2.0]
    assert [value for _, value, _ in lines] == pytest.approx(3 * values)
    assert not any(group["track"] for group in optimizer.param_groups)
    monitor.remove()
    optimizer.step()
    assert len(lines) == 30
    assert monitor.step == 8


def test_a_closure_and_what_the_user_tracks_are_left_alone():
    p = torch.ones(2, requires_grad=True)
    optimizer = NGD([p], 0.1, track=True)
    lines = []
    Monitor(optimizer, lambda *line: lines.append(line))

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert lines[0] == ("npgm/grad_norm", pytest.approx(8**0.5), 1)
    assert optimizer.param_groups[0]["track"]


def test_what_is_refused():
    optimizer = NGD([torch.ones(1)], 0.1)
    with pytest.raises(TypeError, match="not SGD"):
        Monitor(torch.optim.SGD([torch.ones(1)], 0.1), print)
    with pytest.raises(TypeError, match="log must be callable"):
        Monitor(optimizer, None)
    with pytest.raises(ValueError, match="every must be at least 1"):
        Monitor(optimizer, print, every=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of libraries that we do not own
def test_the_writer_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    p = torch.ones(4)
    p.grad = torch.full((4,), 0.5)
    optimizer = NGD([p], 0.1)
    with SummaryWriter(tmp_path) as writer:
        Monitor(optimizer, writer.add_scalar, every=2)
        for _ in range(4):
            optimizer.step()
    written = EventAccumulator(str(tmp_path)).Reload()
    events = {
        name: [(event.step, event.value) for event in written.Scalars(name)] for name in written.Tags()["scalars"]
    }
    assert events["npgm/grad_norm"] == [(2, 1.0), (4, 1.0)]
    assert events["npgm/0/saturation"] == [(2, 0.5), (4, 0.5)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of libraries that we do not own
def test_the_loggers_of_lightning(tmp_path):
    lightning = pytest.importorskip("lightning")
    csv = pytest.importorskip("lightning.pytorch.loggers").CSVLogger(tmp_path, flush_logs_every_n_steps=1)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch):
            return self.net(batch).square().mean()

        def configure_optimizers(self):
            optimizer = NGD(self.parameters(), lr=0.1, momentum=0.9)
            Monitor(optimizer, lambda name, value, step: self.logger.log_metrics({name: value}, step), every=2)
            return optimizer

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=8)
    lightning.Trainer(max_epochs=1, accelerator="cpu", logger=csv, default_root_dir=tmp_path, **quiet).fit(
        Module(), loader
    )
    header, *rows = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().splitlines()
    assert {"npgm/grad_norm", "npgm/0/saturation", "npgm/0/lr"} <= set(header.split(","))
    assert {row.split(",")[header.split(",").index("step")] for row in rows} == {"2", "4"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of libraries that we do not own
def test_the_history_of_the_hugging_face_trainer(tmp_path):
    transformers = pytest.importorskip("transformers")

    class Regression(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def forward(self, x, labels):
            prediction = self.net(x)
            return {"loss": (prediction - labels).square().mean(), "logits": prediction}

    arguments = transformers.TrainingArguments(
        tmp_path,
        max_steps=4,
        per_device_train_batch_size=8,
        max_grad_norm=0.0,
        report_to=[],
        use_cpu=True,
        logging_steps=2,
    )
    rows = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in torch.randn(32, 4)]
    trainer = transformers.Trainer(
        Regression(), arguments, train_dataset=rows, optimizer_cls_and_kwargs=(NGD, {"lr": 0.1, "momentum": 0.9})
    )
    optimizer = trainer.create_optimizer()
    Monitor(optimizer, lambda name, value, step: trainer.log({name: value}), every=arguments.logging_steps)
    trainer.train()
    assert sum("npgm/0/saturation" in entry for entry in trainer.state.log_history) == 2
