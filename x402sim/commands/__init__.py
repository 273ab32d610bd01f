"""The commands, one file each. A file is imported when its command is used."""
