// Package osdriver says how a node's OS is moved as a whole: what every kind of host
// (bootc, rpm-ostree, plain ostree, systemd-sysext) can be asked and told, in the
// same words. The hosts are packages below this one; package detect finds which one
// a node is.
//
// Promise: a driver only says what it read back. What a tool prints, and that it
// ended with 0, proves nothing: some answer "unchanged" and boot the old image, a
// staged deployment can fail at shutdown, and systemd-sysext succeeds when it merged
// nothing. Whoever tells a driver to do something asks for its Status afterwards.
// A driver keeps nothing in memory and holds no opinion: what is foreign or wrong is
// reported as drift, and left as it is.
//
// Inputs: Runner (the host's programs), Root (its files). Outputs: Status. Callers:
// the osimage updater, the agent's facts.
package osdriver
