// Package osversion reads the versions of boot images and releases, which are
// written in several schemes, and says which of two is older.
//
// Promise: plain values. What cannot be read is an error with the text and the
// known schemes; two versions of schemes that cannot be compared are an error
// too. No caller ever gets a "fine" for something that was not understood.
//
// Schemes: semver (Kubernetes, platform releases, Talos, Bottlerocket; two
// numbers count as .0), RHEL CoreOS new (9.6.20251023-0) and legacy
// (418.94.202501221327-0, which holds the release 4.18 and the OS 9.4) and that of
// Azure's marketplace (418.94.20250122, 419.6.20250523: 4.19, OS 9.6), Fedora
// CoreOS (38.20230918.3.0), Flatcar (3815.2.0), Amazon Linux (2023.6.20241010),
// Ubuntu (24.04, 24.04.20250115), bare build dates (20250115, 20250115.1).
//
// Input: text. Output: Version. Callers: internal/bootimage/skew, bootimage,
// bootstream and the controller.
//
//	a, _ := osversion.Parse("418.94.202501221327-0")
//	b, _ := osversion.Parse("9.6.20251023-0")
//	a.Compare(b) // -1, nil
package osversion
