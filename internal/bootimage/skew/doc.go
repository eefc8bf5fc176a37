// Package skew decides whether the boot image of a machine source is new enough
// for a target.
//
// Promise: pure, and closed by default. An unreadable version, an unusable rule and an
// unknown image are violations. A violation stops blocking only with an unexpired waiver that
// has a reason, or if the administrator set the source's mode to None; it is still reported.
// The target version decides, not the version that runs now.
//
// Rules are data. A stream has the limits of its release, a policy adds its own, and every
// rule that matches the target must hold.
//
// The older image counts: of the release that is stated and the one that the OS version
// contains, and of the declared image and those that nodes were installed from since then.
//
// Inputs: Source, Target, rules, waivers, now. Outputs: findings, the minimum
// age. Callers: internal/controller/bootimages, `refit bootimage check`.
//
//	fs := skew.Evaluate(skew.Input{Source: s, Target: skew.Target{Kubernetes: "1.37.0"}, Rules: rules, Now: now})
//	skew.Blocks(fs)
package skew
