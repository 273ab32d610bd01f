"""The commands, one file each, which is imported when its command is used."""
