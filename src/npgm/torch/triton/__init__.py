"""The fused steps in Triton, for tensors on CUDA devices. `driver` is what `npgm.torch.fused` loads, where it can be."""
