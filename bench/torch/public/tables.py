"""Models of packages that have no registry: name to a function that makes (model, inputs[, loss])."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

Made = tuple[Any, ...]
Table = dict[str, Callable[[], Made]]


def _call(path: str, *args: Any, **options: Any) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)(*args, **options)


def _of(
    path: str, inputs: tuple[Any, ...] | dict[str, Any], *args: Any, **options: Any
) -> Callable[[], Made]:
    """A class that is called as it is; of inputs, shapes (lists) become random tensors."""

    def make() -> Made:
        model = _call(path, *args, **options)
        if isinstance(inputs, dict):
            return model, {name: _drawn(value) for name, value in inputs.items()}
        return model, tuple(_drawn(value) for value in inputs)

    return make


def _drawn(value: Any) -> Any:
    return torch.randn(value) if isinstance(value, list) else value


class LossInside(nn.Module):
    """A model whose loss is a method."""

    def __init__(self, inner: nn.Module, run: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.inner, self.run = inner, run

    def forward(self, *inputs: Any) -> torch.Tensor:
        return self.run(self.inner, *inputs)


# ------------------------------------------------------------------ diffusion
_UNET: dict[str, Any] = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}
_CROSS = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")}
_CROSS_UP = {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
_CODER = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
_TIME = torch.tensor([3, 7])

DIFFUSERS: Table = {
    "UNet2DModel": _of(
        "diffusers.UNet2DModel",
        ([2, 3, 32, 32], _TIME),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8,
        **_UNET,
    ),
    "UNet2DConditionModel": _of(
        "diffusers.UNet2DConditionModel",
        ([2, 4, 32, 32], _TIME, [2, 8, 32]),
        cross_attention_dim=32,
        attention_head_dim=8,
        **_CROSS,
        **_CROSS_UP,
        **_UNET,
    ),
    "AutoencoderKL": _of("diffusers.AutoencoderKL", ([2, 3, 32, 32],), sample_size=32, **_CODER, **_UNET),
    "VQModel": _of("diffusers.VQModel", ([2, 3, 32, 32],), num_vq_embeddings=32, **_CODER, **_UNET),
    "AutoencoderTiny": _of("diffusers.AutoencoderTiny", ([2, 3, 64, 64],)),
    "DiTTransformer2DModel": _of(
        "diffusers.DiTTransformer2DModel",
        {"hidden_states": [2, 4, 16, 16], "timestep": _TIME, "class_labels": torch.tensor([1, 2])},
        num_attention_heads=4,
        attention_head_dim=16,
        num_layers=3,
        sample_size=16,
        norm_num_groups=4,
    ),
    "PixArtTransformer2DModel": _of(
        "diffusers.PixArtTransformer2DModel",
        {
            "hidden_states": [2, 4, 16, 16],
            "encoder_hidden_states": [2, 8, 32],
            "timestep": _TIME,
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        },
        num_attention_heads=4,
        attention_head_dim=16,
        num_layers=2,
        sample_size=16,
        cross_attention_dim=64,
        caption_channels=32,
        use_additional_conditions=False,
    ),
    "FluxTransformer2DModel": _of(
        "diffusers.FluxTransformer2DModel",
        {
            "hidden_states": [2, 64, 16],
            "encoder_hidden_states": [2, 8, 32],
            "pooled_projections": [2, 32],
            "timestep": torch.tensor([0.3, 0.5]),
            "img_ids": torch.zeros(64, 3),
            "txt_ids": torch.zeros(8, 3),
        },
        in_channels=16,
        num_layers=1,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    ),
    "SD3Transformer2DModel": _of(
        "diffusers.SD3Transformer2DModel",
        {
            "hidden_states": [2, 4, 16, 16],
            "encoder_hidden_states": [2, 8, 32],
            "pooled_projections": [2, 64],
            "timestep": _TIME,
        },
        sample_size=16,
        in_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=64,
        pooled_projection_dim=64,
        out_channels=4,
    ),
    "ControlNetModel": _of(
        "diffusers.ControlNetModel",
        ([2, 4, 32, 32], _TIME, [2, 8, 32], [2, 3, 64, 64]),
        cross_attention_dim=32,
        attention_head_dim=8,
        conditioning_embedding_out_channels=(16, 32),
        **_CROSS,
        **_UNET,
    ),
}


# ------------------------------------------------------------------ graphs
def _graph(nodes: int = 400, edges: int = 2000, width: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(nodes, width), torch.randint(0, nodes, (2, edges))


def _gnn(path: str, **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        return _call(path, 32, 64, 3, **options), _graph()

    return make


def _near(pos: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Edges between atoms of a molecule that are near, with distances: the package's own takes a library."""
    distance = torch.cdist(pos, pos)
    near = (distance < 6) & (batch[:, None] == batch[None]) & ~torch.eye(len(pos), dtype=torch.bool)
    edges = near.nonzero().T
    return edges, (pos[edges[0]] - pos[edges[1]]).norm(dim=-1)


def _schnet() -> Made:
    """Atoms, positions and which molecule each is of."""
    options = {"hidden_channels": 32, "num_filters": 32, "num_interactions": 2, "interaction_graph": _near}
    inputs = (torch.randint(1, 9, (80,)), torch.randn(80, 3) * 2, torch.arange(4).repeat_interleave(20))
    return _call("torch_geometric.nn.SchNet", **options), inputs


class _GraphClassifier(nn.Module):
    """Convolutions with attention of edges, pooling by top k, a readout: sizes depend on data."""

    def __init__(self) -> None:
        super().__init__()
        nets = import_module("torch_geometric.nn")
        self.first, self.second = nets.GraphConv(32, 64), nets.GATv2Conv(64, 16, heads=4)
        self.pool = nets.TopKPooling(64, ratio=0.6)
        self.last, self.mean = nn.Linear(128, 5), nets.global_mean_pool

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = self.first(x, edges).relu()
        x, edges, _, batch, _, _ = self.pool(x, edges, None, batch)
        y = self.second(x, edges).relu()
        out: torch.Tensor = self.last(torch.cat([self.mean(x, batch), self.mean(y, batch)], 1))
        return out


def _graph_autoencoder() -> Made:
    """Negative edges are drawn in the loss."""
    encoder = _call("torch_geometric.nn.GCN", 32, 64, 2)
    model = _call("torch_geometric.nn.GAE", encoder)
    return LossInside(model, lambda m, x, e: m.recon_loss(m.encode(x, e), e)), _graph()


TORCH_GEOMETRIC: Table = {
    "GCN": _gnn("torch_geometric.nn.GCN", dropout=0.2),
    "GAT": _gnn("torch_geometric.nn.GAT", heads=4, dropout=0.2),
    "GraphSAGE": _gnn("torch_geometric.nn.GraphSAGE", jk="cat", norm="batch"),
    "GIN": _gnn("torch_geometric.nn.GIN", jk="lstm"),
    "PNA": _gnn(
        "torch_geometric.nn.PNA",
        aggregators=["mean", "max", "std"],
        scalers=["identity", "amplification"],
        deg=torch.tensor([5, 20, 60, 80, 60, 20]),
    ),
    "GraphUNet": lambda: (_call("torch_geometric.nn.GraphUNet", 32, 32, 8, depth=2), _graph(80, 300)),
    "SchNet": _schnet,
    "GPSConv": lambda: (
        _call("torch_geometric.nn.GPSConv", 32, _call("torch_geometric.nn.GCNConv", 32, 32), heads=4),
        _graph(),
    ),
    "classifier with TopKPooling": lambda: (
        _GraphClassifier(),
        (*_graph(), torch.arange(8).repeat_interleave(50)),
    ),
    "GAE": _graph_autoencoder,
}

# ------------------------------------------------------------------ images and volumes
MONAI: Table = {
    "UNet": _of(
        "monai.networks.nets.UNet",
        ([2, 1, 32, 32, 32],),
        spatial_dims=3,
        in_channels=1,
        out_channels=2,
        channels=(8, 16, 32),
        strides=(2, 2),
        num_res_units=2,
    ),
    "SegResNet": _of("monai.networks.nets.SegResNet", ([2, 1, 32, 32, 32],), dropout_prob=0.2),
    "DynUNet": _of(
        "monai.networks.nets.DynUNet",
        ([2, 1, 32, 32, 32],),
        spatial_dims=3,
        in_channels=1,
        out_channels=2,
        kernel_size=[3, 3, 3],
        strides=[1, 2, 2],
        upsample_kernel_size=[2, 2],
        filters=[8, 16, 32],
        deep_supervision=True,
    ),
    "VNet": _of("monai.networks.nets.VNet", ([1, 1, 32, 32, 32],)),
    "SwinUNETR": _of(
        "monai.networks.nets.SwinUNETR", ([1, 1, 64, 64, 64],), in_channels=1, out_channels=2, feature_size=12
    ),
    "UNETR": _of(
        "monai.networks.nets.UNETR",
        ([1, 1, 32, 32, 32],),
        in_channels=1,
        out_channels=2,
        img_size=(32, 32, 32),
        feature_size=8,
        hidden_size=64,
        mlp_dim=128,
        num_heads=4,
    ),
    "AttentionUnet": _of(
        "monai.networks.nets.AttentionUnet",
        ([2, 1, 64, 64],),
        spatial_dims=2,
        in_channels=1,
        out_channels=2,
        channels=(8, 16, 32),
        strides=(2, 2),
    ),
    "VarAutoEncoder": _of(
        "monai.networks.nets.VarAutoEncoder",
        ([4, 1, 32, 32],),
        spatial_dims=2,
        in_shape=(1, 32, 32),
        out_channels=1,
        latent_size=8,
        channels=(8, 16),
        strides=(2, 2),
    ),
}
_SMP = "segmentation_models_pytorch."
SEGMENTATION: Table = {
    "Unet": _of(
        _SMP + "Unet", ([2, 3, 64, 64],), "resnet18", encoder_weights=None, decoder_attention_type="scse"
    ),
    "FPN": _of(_SMP + "FPN", ([2, 3, 64, 64],), "mobilenet_v2", encoder_weights=None),
    "MAnet": _of(_SMP + "MAnet", ([2, 3, 64, 64],), "timm-regnetx_002", encoder_weights=None),
    "DeepLabV3Plus": _of(_SMP + "DeepLabV3Plus", ([2, 3, 64, 64],), "efficientnet-b0", encoder_weights=None),
    "Segformer": _of(_SMP + "Segformer", ([2, 3, 64, 64],), "mit_b0", encoder_weights=None),
}
_VIT: dict[str, Any] = {
    "image_size": 64,
    "num_classes": 10,
    "dim": 64,
    "heads": 4,
    "mlp_dim": 128,
    "depth": 3,
}
VIT_PYTORCH: Table = {
    "SimpleViT": _of("vit_pytorch.simple_vit.SimpleViT", ([2, 3, 64, 64],), patch_size=8, **_VIT),
    "CaiT": _of(
        "vit_pytorch.cait.CaiT",
        ([2, 3, 64, 64],),
        patch_size=8,
        cls_depth=2,
        dropout=0.1,
        emb_dropout=0.1,
        layer_dropout=0.2,
        **_VIT,
    ),
    "NaViT": lambda: (
        _call("vit_pytorch.na_vit.NaViT", patch_size=8, dropout=0.1, token_dropout_prob=0.1, **_VIT),
        ([[torch.randn(3, 64, 48), torch.randn(3, 32, 64)], [torch.randn(3, 64, 64)]],),
    ),
}
DENOISING: Table = {
    "GaussianDiffusion": lambda: (
        _call(
            "denoising_diffusion_pytorch.GaussianDiffusion",
            _call("denoising_diffusion_pytorch.Unet", dim=16, dim_mults=(1, 2), flash_attn=False),
            image_size=32,
            timesteps=50,
        ),
        (torch.rand(2, 3, 32, 32),),
    ),
    "GaussianDiffusion1D": lambda: (
        _call(
            "denoising_diffusion_pytorch.GaussianDiffusion1D",
            _call("denoising_diffusion_pytorch.Unet1D", dim=16, dim_mults=(1, 2), channels=4),
            seq_length=64,
            timesteps=50,
        ),
        (torch.rand(4, 4, 64),),
    ),
}

# ------------------------------------------------------------------ operators, flows, equations
NEURALOP: Table = {
    "FNO": _of(
        "neuralop.models.FNO", ([2, 3, 32, 32],), (8, 8), in_channels=3, out_channels=1, hidden_channels=32
    ),
    "TFNO": _of(
        "neuralop.models.TFNO",
        ([2, 3, 32, 32],),
        (8, 8),
        in_channels=3,
        out_channels=1,
        hidden_channels=32,
        rank=0.3,
    ),
    "UNO": _of(
        "neuralop.models.UNO",
        ([2, 3, 32, 32],),
        in_channels=3,
        out_channels=1,
        hidden_channels=16,
        n_layers=3,
        uno_out_channels=[16, 16, 16],
        uno_n_modes=[[8, 8], [4, 4], [8, 8]],
        uno_scalings=[[0.5, 0.5], [1, 1], [2, 2]],
        channel_mlp_skip="linear",
    ),
}


def _nflow(*transforms: str) -> Callable[[], Made]:
    def make() -> Made:
        kinds: dict[str, Callable[[], Any]] = {
            "maf": lambda: _call(
                "nflows.transforms.MaskedAffineAutoregressiveTransform", features=8, hidden_features=64
            ),
            "spline": lambda: _call(
                "nflows.transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform",
                features=8,
                hidden_features=32,
                num_bins=6,
                tails="linear",
                tail_bound=3.0,
            ),
            "swap": lambda: _call("nflows.transforms.ReversePermutation", features=8),
            "lu": lambda: _call("nflows.transforms.LULinear", 8),
            "norm": lambda: _call("nflows.transforms.BatchNorm", 8),
        }
        chain = _call("nflows.transforms.CompositeTransform", [kinds[name]() for name in transforms])
        base = _call("nflows.distributions.StandardNormal", [8])
        flow = _call("nflows.flows.Flow", chain, base)
        return LossInside(flow, lambda m, x: -m.log_prob(x).mean()), (torch.randn(256, 8),)

    return make


def _real_nvp() -> Made:
    flows = []
    for _ in range(4):
        net = _call("normflows.nets.MLP", [2, 64, 64, 4], init_zeros=True)
        flows += [
            _call("normflows.flows.AffineCouplingBlock", net),
            _call("normflows.flows.Permute", 4, mode="swap"),
        ]
        flows.append(_call("normflows.flows.ActNorm", 4))
    model = _call("normflows.NormalizingFlow", _call("normflows.distributions.DiagGaussian", 4), flows)
    return LossInside(model, lambda m, x: m.forward_kld(x)), (torch.randn(512, 4),)


def _residual_flow() -> Made:
    """Traces of Jacobians are estimated by gradients inside the forward."""
    flows = []
    for _ in range(2):
        net = _call("normflows.nets.LipschitzMLP", [4, 32, 4], init_zeros=True, lipschitz_const=0.9)
        flows.append(_call("normflows.flows.Residual", net, reduce_memory=False))
    model = _call("normflows.NormalizingFlow", _call("normflows.distributions.DiagGaussian", 4), flows)
    return LossInside(model, lambda m, x: m.forward_kld(x)), (torch.randn(64, 4),)


def _zuko(path: str, **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        flow = _call(path, features=6, context=3, hidden_features=(64, 64), **options)
        model = LossInside(flow, lambda m, x, c: -m(c).log_prob(x).mean())
        return model, (torch.randn(128, 6), torch.randn(128, 3))

    return make


class _Field(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, width))
        self.noise = nn.Linear(width, width)
        self.noise_type, self.sde_type = "diagonal", "ito"

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(y)
        return out

    f = forward

    def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 0.1 * torch.sigmoid(self.noise(y))


def _ode(method: str, solver: str = "torchdiffeq.odeint") -> Callable[[], Made]:
    def make() -> Made:
        times = torch.linspace(0, 1, 5)
        model = LossInside(_Field(8), lambda m, y: _call(solver, m, y, times, method=method).square().mean())
        return model, (torch.randn(128, 8),)

    return make


def _sde() -> Made:
    times = torch.linspace(0, 1, 4)
    model = LossInside(
        _Field(4), lambda m, y: _call("torchsde.sdeint", m, y, times, dt=0.1, method="euler").square().mean()
    )
    return model, (torch.randn(64, 4),)


def _cde() -> Made:
    class Vector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 8 * 3)

        def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.net(z)).view(*z.shape[:-1], 8, 3)

    def run(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        path = _call("torchcde.CubicSpline", _call("torchcde.natural_cubic_coeffs", x))
        z = _call(
            "torchcde.cdeint", path, model, torch.ones(len(x), 8), path.interval, adjoint=False, method="rk4"
        )
        out: torch.Tensor = z.square().mean()
        return out

    return LossInside(Vector(), run), (torch.randn(16, 12, 3),)


def _forces() -> Made:
    """An equivariant network whose forces are a gradient in the forward."""
    o3 = import_module("e3nn.o3")

    class Potential(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(1, 8)
            self.product = o3.FullyConnectedTensorProduct("8x0e", "1x0e+1x1o+1x2e", "8x0e+4x1o")
            self.last = o3.FullyConnectedTensorProduct("8x0e+4x1o", "1x0e+1x1o+1x2e", "1x0e")

        def forward(self, pos: torch.Tensor) -> torch.Tensor:
            pos = pos.detach().requires_grad_()
            edge = (pos[:, None] - pos[None]).reshape(-1, 3)
            edge = edge[edge.norm(dim=1) > 0]
            around = o3.spherical_harmonics("1x0e+1x1o+1x2e", edge, normalize=True)
            hidden = self.product(self.embed(edge.norm(dim=1, keepdim=True)), around)
            energy = self.last(torch.tanh(hidden), around).sum()
            (force,) = torch.autograd.grad(energy, pos, create_graph=True)
            return force.square().mean() + energy.square() * 1e-3

    return Potential(), (torch.randn(12, 3),)


FLOWS: dict[str, Table] = {
    "nflows": {
        "MAF": _nflow("maf", "swap", "norm", "maf"),
        "spline flow": _nflow("spline", "swap", "lu", "spline"),
    },
    "normflows": {"RealNVP": _real_nvp, "Residual": _residual_flow},
    "zuko": {
        "NSF": _zuko("zuko.flows.NSF", transforms=2),
        "CNF": _zuko("zuko.flows.CNF"),
        "NAF": _zuko("zuko.flows.NAF", transforms=1),
    },
    "torchdiffeq": {
        "dopri5": _ode("dopri5"),
        "rk4": _ode("rk4"),
        "adjoint": _ode("dopri5", "torchdiffeq.odeint_adjoint"),
    },
    "torchsde": {"euler": _sde},
    "torchcde": {"rk4": _cde},
    "e3nn": {"potential with forces": _forces},
}


# ------------------------------------------------------------------ sequences, sound, tables
def _x_transformer(**options: Any) -> Callable[[], Made]:
    def make() -> Made:
        layers = _call("x_transformers.Decoder", dim=64, depth=3, heads=4, attn_dim_head=16, **options)
        net = _call("x_transformers.TransformerWrapper", num_tokens=256, max_seq_len=72, attn_layers=layers)
        return _call("x_transformers.AutoregressiveWrapper", net), (torch.randint(0, 256, (4, 65)),)

    return make


X_TRANSFORMERS: Table = {
    "rotary, GLU": _x_transformer(rotary_pos_emb=True, ff_glu=True, attn_dropout=0.1, ff_dropout=0.1),
    "ALiBi, RMS norm": _x_transformer(alibi_pos_bias=True, use_rmsnorm=True, attn_kv_heads=2),
    "sparse top k": _x_transformer(attn_sparse_topk=8, residual_attn=True),
    "layer dropout": _x_transformer(layer_dropout=0.3, rel_pos_bias=True, sandwich_norm=True),
}
_LENGTHS = torch.tensor([40, 30])
TORCHAUDIO: Table = {
    "Conformer": _of("torchaudio.models.Conformer", ([2, 40, 32], _LENGTHS), 32, 4, 64, 2, 7, dropout=0.1),
    "ConvTasNet": _of(
        "torchaudio.models.ConvTasNet",
        ([2, 1, 2000],),
        enc_num_feats=32,
        msk_num_feats=16,
        msk_num_hidden_feats=32,
        msk_num_layers=3,
        msk_num_stacks=2,
    ),
    "Emformer": _of(
        "torchaudio.models.Emformer", ([2, 44, 32], _LENGTHS), 32, 4, 64, 2, 8, right_context_length=4
    ),
    "Wav2Letter": _of("torchaudio.models.Wav2Letter", ([2, 1, 4000],), num_classes=20),
    "Tacotron2": lambda: (
        _call("torchaudio.models.Tacotron2", encoder_embedding_dim=64, symbol_embedding_dim=64, n_symbol=40),
        (
            torch.randint(0, 40, (2, 20)),
            torch.tensor([20, 15]),
            torch.randn(2, 80, 24),
            torch.tensor([24, 20]),
        ),
    ),
    "DeepSpeech": _of("torchaudio.models.DeepSpeech", ([2, 40, 32],), 32, n_hidden=64, n_class=20),
}
TABNET: Table = {
    "TabNet": lambda: (
        _call(
            "pytorch_tabnet.tab_network.TabNet",
            16,
            4,
            n_d=16,
            n_a=16,
            virtual_batch_size=64,
            group_attention_matrix=torch.eye(16),
        ),
        (torch.randn(256, 16),),
    ),
}

TABLES: dict[str, Table] = {
    "diffusers": DIFFUSERS,
    "torch_geometric": TORCH_GEOMETRIC,
    "monai": MONAI,
    "segmentation_models_pytorch": SEGMENTATION,
    "vit_pytorch": VIT_PYTORCH,
    "denoising_diffusion_pytorch": DENOISING,
    "neuralop": NEURALOP,
    **FLOWS,
    "x_transformers": X_TRANSFORMERS,
    "torchaudio": TORCHAUDIO,
    "pytorch_tabnet": TABNET,
}
