"""The optimizers run unchanged inside the training loops that people use."""

import pytest
import torch

from npgm.torch import IHGD, NPGM, SHGD

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of libraries that we do not own
]


def dataset(rows=32):
    torch.manual_seed(0)
    x = torch.randn(rows, 4)
    return torch.utils.data.TensorDataset(x, x @ torch.randn(4, 1))


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def train(net, optimizer, epochs=2, accumulate=1):
    """The loop written out."""
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, 8)
    for _ in range(epochs):
        loader = torch.utils.data.DataLoader(dataset(), batch_size=8)
        for i, (x, y) in enumerate(loader):
            ((net(x) - y).square().mean() / accumulate).backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()


def assert_same(net, other):
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.detach(), q.detach())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning(tmp_path, accumulate):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model()

        def training_step(self, batch):
            x, y = batch
            return (self.net(x) - y).square().mean()

        def configure_optimizers(self):
            optimizer = IHGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
            scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, 8)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def trainer(epochs):
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        return lightning.Trainer(
            max_epochs=epochs, default_root_dir=tmp_path, accumulate_grad_batches=accumulate, **quiet
        )

    loader = torch.utils.data.DataLoader(dataset(), batch_size=8)
    module = Module()
    first = trainer(1)
    first.fit(module, loader)
    first.save_checkpoint(tmp_path / "one.ckpt")
    resumed = Module()
    trainer(2).fit(resumed, loader, ckpt_path=tmp_path / "one.ckpt")

    net = model()
    train(net, IHGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01), accumulate=accumulate)
    assert_same(resumed.net, net)


def test_hugging_face_trainer(tmp_path):
    transformers = pytest.importorskip("transformers")

    class Regression(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, x, labels):
            prediction = self.net(x)
            return {"loss": (prediction - labels).square().mean(), "logits": prediction}

    class Ordered(transformers.Trainer):
        def _get_train_sampler(self, *args, **kwargs):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    rows = [{"x": x, "labels": y} for x, y in dataset()]
    common = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "epoch", "max_grad_norm": 0.0}

    def trainer(epochs, wrapped, resume):
        optimizer = SHGD(wrapped.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, 8)
        arguments = transformers.TrainingArguments(
            output_dir=tmp_path, num_train_epochs=epochs, per_device_train_batch_size=8, **common
        )
        run = Ordered(wrapped, arguments, train_dataset=rows, optimizers=(optimizer, scheduler))
        run.train(resume_from_checkpoint=resume)

    trainer(1, Regression(), None)
    wrapped = Regression()
    trainer(2, wrapped, True)
    net = model()
    train(net, SHGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01))
    assert_same(wrapped.net, net)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_accelerate(tmp_path, accumulate):
    accelerate = pytest.importorskip("accelerate")

    def prepare():
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        net = model()
        optimizer = NPGM(net.parameters(), lr=0.1, momentum=0.9, reference="isotropic-log", foreach=True)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, 8)
        loader = torch.utils.data.DataLoader(dataset(), batch_size=8)
        return accelerator, *accelerator.prepare(net, optimizer, loader, scheduler)

    def epoch(accelerator, net, optimizer, loader, scheduler):
        for x, y in loader:
            with accelerator.accumulate(net):
                accelerator.backward((net(x) - y).square().mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    first = prepare()
    epoch(*first)
    first[0].save_state(tmp_path)
    second = prepare()
    second[0].load_state(tmp_path)
    epoch(*second)
    net = model()
    options = {"lr": 0.1, "momentum": 0.9, "reference": "isotropic-log"}
    train(net, NPGM(net.parameters(), **options), accumulate=accumulate)
    assert_same(second[1], net)
