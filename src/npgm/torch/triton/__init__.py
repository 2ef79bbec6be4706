"""The fused steps in Triton, for tensors on CUDA devices; `npgm.torch.fused` loads `driver` where it can be used."""
