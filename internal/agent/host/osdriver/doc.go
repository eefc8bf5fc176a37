// Package osdriver moves a node's OS as one image, with the tool the host has: bootc,
// rpm-ostree, plain libostree or systemd-sysext. Detect returns the driver of a node.
//
// Promise: a driver reports only what it read back. Output and exit status 0 of a tool
// prove nothing: bootc answers "unchanged" and boots the old image, a staged deployment
// can fail at shutdown, systemd-sysext succeeds when it merged nothing. Callers read
// Status after every command. A driver has no state in memory. Foreign changes are
// reported as drift and stay. Detect never takes an unknown host for an unsupported one:
// a bootc that does not answer is an error, because a rebase under it would change what
// bootc manages.
//
//   - bootc: `switch` to the staged image, or while a rollback is queued, prints
//     "unchanged" and ends with 0.
//   - rpm-ostree: rebase first, kernel arguments on top of the pending deployment. The
//     other order loses the arguments. rpm-ostree ignores kargs.d of an image, so the
//     driver applies it.
//   - libostree: the image becomes a commit that carries the image's digest, the commit
//     becomes a staged deployment, libostree merges /etc at shutdown.
//   - systemd-sysext: versions are next to each other in the agent's directory; one link selects
//     the active one. The stamp read through /usr proves which one is merged.
//
// A BootCounter makes GRUB return to the earlier deployment if a new one does not come up.
//
// Size: five kinds of hosts, and the boot counter that they share. A package for the counter alone
// would have one importer.
//
// Inputs: Runner (the host's programs), Root (its files), Openers (images as streams).
// Outputs: Status. Callers: the osdeploy updater, the agent's node facts.
package osdriver
