// Package dnsaudit knows which questions for a name CRI-O asks by itself.
//
// CRI-O resolves the registry in an image's name before it reads its mirror
// configuration, to compare the addresses with the networks of insecure registries
// (CRI-O 1.34, internal/storage/image.go, isSecureIndex). No setting that it reloads
// without a restart ends that, and it ignores the answer if the pull goes to a mirror on
// loopback. One lookup is two questions, A and AAAA.
//
// Promise: questions count as such lookups only if there are at most two for each pull
// in CRI-O's log, and if every pull went to loopback. All count, or none.
//
// Inputs: CRI-O's log, kinds of questions. Outputs: how many it asks by itself.
// Caller: the lab's scenarios.
package dnsaudit
