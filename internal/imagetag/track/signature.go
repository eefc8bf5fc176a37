package track

// Signature is what the rules for signatures say of an image.
type Signature struct {
	// Refused says why they refuse it, "" if the signature is valid; Signer is by whom then.
	Refused, Signer string
}
