"""The stages, on which stories are played: in-process, TCP, or a deployment."""
