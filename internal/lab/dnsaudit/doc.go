// Package dnsaudit knows which questions for a name CRI-O asks by itself.
//
// CRI-O has the addresses of the registry in an image's name looked up before it
// reads where its configuration sends the pull, to compare them with the networks of
// insecure registries (CRI-O 1.34, internal/storage/image.go, isSecureIndex). No
// configuration that it reads again without a restart ends that, and nothing is done
// with the answer when the pull goes to a mirror on loopback. One look-up is two
// questions, A and AAAA.
//
// Promise: questions are taken for that only if they are no more than two for each
// pull in CRI-O's log, and if no pull in it went anywhere but to loopback: all of a
// kind or none.
//
// Inputs: CRI-O's log, kinds of questions. Outputs: how many it asks by itself.
// Caller: the lab's scenarios.
package dnsaudit
