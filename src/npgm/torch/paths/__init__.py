"""The ways to take a step: each a module with the two functions of `npgm.torch.batch.Path`."""
