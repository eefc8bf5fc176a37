// Command release packs programs that are built into the files of a release.
//
// Promise: the same programs, version and date give the same bytes. No file has the name of
// this machine, its user or the time of packing. SHA256SUMS names every other file, and with a
// key it is signed. The directory is complete when the command ends, or it is not there.
//
// Input: a directory with one directory for each platform (linux-amd64, windows-amd64, ...),
// as `make release` builds them; config and charts of this repository. Output: archives
// of refit and of the optional refit-providers, an image of each, and an SPDX SBOM for each archive.
// Further Debian packages of the agent, a krew manifest, the documentation as web pages, SHA256SUMS. The subcommand site makes these pages alone.
package main
