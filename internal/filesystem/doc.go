// Package filesystem reads files from the file systems of ordinary media in user space: FAT32,
// exFAT, ISO 9660 (Joliet and Rock Ridge) and ext4. Nothing is mounted, and readers write nothing.
//
// Promise: a medium is a stranger's. Every number on it is checked before it is used, every
// walk has an end, and memory does not grow with the medium. A damaged or hostile file system
// gives an error that names what is wrong and where, never a panic, an endless loop or a wrong
// file. What a reader does not know (compression, encryption, a newer format) is an error too.
//
// Partitions reads MBR and GPT, since ordinary media have a partition table.
//
// NewFAT32 and NewExFAT plan a new disk: a partition table and a volume with contiguous files. The
// caller writes the contents, so memory does not grow with them. The disk is readable after the last
// write only.
//
// Reading is fast: contiguous parts of a file are read in one piece from the medium.
//
// Inputs: an io.ReaderAt over a device, a partition or an image file, and its size in bytes.
// Outputs: a Volume, an fs.FS whose regular files are io.ReaderAt. Callers: bundlereader,
// for the commands that take a bundle from a device or an image file, and for the agent's process
// without privileges. Extents tell a process that parses nothing where a file is.
//
// Size: four formats and the partition tables share one tree of names, one medium with its bounds
// and one set of tests with damaged images. Packages of their own would export these layers.
package filesystem
