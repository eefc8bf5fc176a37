// Package componentversion parses and compares the versions of Kubernetes and of operating
// systems, and has the version of this refit.
//
// Promise: it is pure. A version of an unknown form is an error that names the text and
// the known schemes. Comparing versions of two schemes without a common order is an error
// too, so no caller takes an unreadable version for a good one.
//
// Kubernetes (LessKubernetes, SameKubernetes): distributions publish another build of the
// same release as v1.35.4+k3s2 after v1.35.4+k3s1, often for a security fix. Semantic
// versioning ignores build metadata (section 10 of semver.org), so the two would be equal.
// Here the second is newer. Builds of two distributions have no order, nor has a build and
// the release without one: they are another thing, never the same version. Builds of an unknown
// form have no order either. Package distribution has the forms.
//
// Bundles (LessBundle): builds are ordered by their numbers, in any form.
//
// Operating systems and boot images (ParseOS):
//
//   - semver: platform releases, Talos, Bottlerocket; two numbers count as .0
//   - RHEL CoreOS: 9.6.20251023-0
//   - RHEL CoreOS, legacy: 418.94.202501221327-0 has the release 4.18 and the OS 9.4
//   - RHEL CoreOS on Azure's marketplace: 418.94.20250122; 419.6.20250523 is 4.19, OS 9.6
//   - Fedora CoreOS 38.20230918.3.0, Flatcar 3815.2.0, Amazon Linux 2023.6.20241010
//   - Ubuntu 24.04 and 24.04.20250115, build dates 20250115 and 20250115.1
//
// Input: text. Output: OSVersion, answers. Callers: the plan, capidiff, internal/bootimage
// and its controllers.
//
//	a, _ := componentversion.ParseOS("418.94.202501221327-0")
//	b, _ := componentversion.ParseOS("9.6.20251023-0")
//	a.Compare(b) // -1, nil
package componentversion
