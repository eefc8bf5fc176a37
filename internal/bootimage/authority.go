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

// Authority has the facts about the certificate authority in one first-boot configuration.
type Authority struct {
	Now  time.Time
	Mode string
	// Secret with the configuration, as namespace/name; Wanted is the fingerprint of the
	// authority that it should trust.
	Secret, Wanted string
	// Left is why refit leaves it alone: it is no Ignition, or names another server.
	Left string
	// Unusable is why refit cannot change it, or does not know the authority.
	Unusable string
	// Same: it trusts the wanted authority already.
	Same bool
	// Owner is the other writer of the Secret, empty for none.
	Owner string
	// Past writes, the last other writer of the Secret, and the time of its write.
	Past      []Past
	UndoneBy  string
	ForeignAt time.Time
	Contest   Contest
}

// DecideAuthority decides independently of the image: a machine with a fresh image and an
// old authority cannot join.
func DecideAuthority(in Authority) Decision {
	say := func(state, reason, fix, format string, args ...any) Decision {
		return Decision{Action: Suggest, State: state, Reason: reason, Message: "Secret " + in.Secret + ": " + fmt.Sprintf(format, args...), Fix: fix}
	}
	const trusts = "it trusts the server's authority" // equal before and after a write, so that the status does not change twice
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
	if count, stop := in.Contest.reached(in.Now, in.Past, in.Wanted, in.ForeignAt); stop {
		return say(Contested, reasonAuthorityContested, "stop that writer; refit tries again after a quiet time", "the server's authority was written %d times and reverted by %s", count, otherWriter(in.UndoneBy))
	}
	d := say(Current, reasonAsExpected, "", trusts)
	d.Action = Write
	return d
}
