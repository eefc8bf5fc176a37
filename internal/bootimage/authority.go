package bootimage

import (
	"fmt"
	"time"
)

// Reason words about the authority in first-boot configurations.
const (
	reasonAuthorityContested = "AuthorityContested"
	reasonAuthorityOutdated  = "AuthorityOutdated"
	reasonAuthorityUnusable  = "AuthorityUnusable"
)

// Authority is what is known of the certificate authority in one first-boot
// configuration.
type Authority struct {
	Now  time.Time
	Mode string
	// Secret that holds the configuration, as namespace/name, and Wanted: the
	// fingerprint of the authority that it should trust.
	Secret, Wanted string
	// Left says why it is none of ours: no Ignition, another server's.
	Left string
	// Unusable says why it cannot be changed, or what it should trust is not known.
	Unusable string
	// Same is true if it trusts the wanted authority already.
	Same bool
	// Owner is who else writes the Secret.
	Owner string
	// Past writes, who wrote the Secret last but refit, and when.
	Past      []Past
	UndoneBy  string
	ForeignAt time.Time
	Contest   Contest
}

// DecideAuthority says what is to be done. The decision of the image
// has no part in it: a machine with a fresh image and an old authority does not
// join either.
func DecideAuthority(in Authority) Decision {
	say := func(state, reason, fix, format string, args ...any) Decision {
		return Decision{Action: Say, State: state, Reason: reason, Message: "Secret " + in.Secret + ": " + fmt.Sprintf(format, args...), Fix: fix}
	}
	const trusts = "it trusts the server's authority" // the same before and after a write: no second one for a word
	const itself = "put the authority into it yourself"
	switch {
	case in.Left != "":
		return say(Excluded, reasonAsExpected, "", "%s, so its authority is left alone", in.Left)
	case in.Unusable != "":
		return say(Unknown, reasonAuthorityUnusable, itself, "%s", in.Unusable)
	case in.Same:
		return say(Current, reasonAsExpected, "", trusts)
	case in.Owner != "":
		return say(Skipped, reasonAuthorityOutdated, "let "+in.Owner+" write it", "it trusts another authority than the server has, and %s writes it", in.Owner)
	case in.Mode != NewMachinesOnly && in.Mode != Piggyback && in.Mode != Roll:
		return say(Outdated, reasonAuthorityOutdated, itself+", or choose a mode that writes", "it trusts another authority than the server has, and mode %s writes nothing", in.Mode)
	}
	if count, stop := in.Contest.stops(in.Now, in.Past, in.Wanted, in.ForeignAt); stop {
		return say(Contested, reasonAuthorityContested, "stop that writer; after a quiet time it is tried again", "the server's authority was written %d times and undone by %s", count, undoer(in.UndoneBy))
	}
	d := say(Current, reasonAsExpected, "", trusts)
	d.Action = Write
	return d
}
