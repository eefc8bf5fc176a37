package lint

// Rule is one question.
type Rule struct {
	ID string `json:"id"`
	// Severity at its worst.
	Severity Severity `json:"severity"`
	// Finds says what it finds.
	Finds string `json:"finds"`
	check func(*check)
}

// Rules in order.
func Rules() []Rule {
	return []Rule{
		{"T01", Error, "a tag that may move, without a digest, on what a node needs", movingCritical},
		{"T02", Error, "policy Always on what a node needs to come up", alwaysCritical},
		{"T03", Error, "policy Always where no registry is, or for an image of the bundle", alwaysOffline},
		{"T04", Warning, "a tag that may move with IfNotPresent: rebuilds never arrive, new nodes differ", movingCached},
		{"T05", Info, "a digest whose tag means another image now", stalePin},
		{"T06", Error, "an image that the bundle does not bring, or that no registry keeps", notKept},
		{"T07", Info, "no pull policy: which one it becomes, for good", policyOmitted},
		{"T08", Warning, "a moving tag under a single replica that cannot surge, or a budget that allows nothing", singleReplica},
		{"T09", Error, "a reference that is illegal, or not of the repository's declared scheme", illegal},
		{"T10", Warning, "loaded images and a kubelet that compares credentials", credentials},
		{"T11", Warning, "protected images that are not pinned, or collected by age too soon", unprotected},
		{"T12", Warning, "one repository by two pointers", twoPointers},
		{"T13", Error, "AlwaysPullImages where no registry is", alwaysAdmission},
		{"T14", Warning, "a rollout that pulls only after it has ended the old pod", pullAfterKill},
		{"T15", Error, "an admission webhook that asks a registry about new pods, or writes their images", hooks},
		{"T16", Warning, "a controller that asks registries what tags mean", followers},
	}
}

// known reports whether a rule exists.
func known(id string) bool {
	for _, r := range Rules() {
		if r.ID == id {
			return true
		}
	}
	return false
}
