package bootstream

import "strings"

// Generations of Hyper-V, as stream metadata ends the names of its variants.
const (
	firstGeneration  = ".hyperVGen1"
	secondGeneration = ".hyperVGen2"
	freePlan         = "no-purchase-plan"
)

// ChooseOffer sets the variant of a key without one to an offer of Azure's marketplace. The
// offer has the publisher and offer of the current image, so that the user does not pay for
// another product. It also has the same hardware generation, without which a machine does not
// start. The current image may be one that an installer uploaded: the offer without a purchase
// plan replaces it. If none fits, the key is unchanged and Find lists the variants.
func (s *Stream) ChooseOffer(k Key, current map[string]string, text string) Key {
	if k.Platform != "azure" || k.Variant != "" {
		return k
	}
	generation := generationOf(k.Architecture, current, text)
	var hits []string
	for _, i := range s.Images {
		plan, ok := strings.CutSuffix(i.Key.Variant, generation)
		of := i.Key
		of.Region, of.Variant = k.Region, ""
		if ok && of == k && sameProduct(i, plan, current, text) {
			hits = append(hits, i.Key.Variant)
		}
	}
	if len(hits) == 1 {
		k.Variant = hits[0]
	}
	return k
}

// sameProduct reports whether an image has the current publisher and offer. For an image that
// an installer uploaded, it is the one without a purchase plan.
func sameProduct(i Image, plan string, current map[string]string, text string) bool {
	if current["publisher"] == "" {
		return plan == freePlan && strings.Contains(strings.ToLower(text), "/galleries/")
	}
	return i.Attributes["publisher"] == current["publisher"] && i.Attributes["offer"] == current["offer"]
}

// generationOf returns the hardware generation of an image. ARM has only the second. An
// uploaded image has it in its name, the free offer as -v2. Paid offers are of the second
// unless their name has -gen1.
func generationOf(architecture string, current map[string]string, text string) string {
	sku := strings.ToLower(current["sku"])
	var second bool
	switch {
	case architecture == "arm64":
		second = true
	case current["publisher"] == "":
		second = strings.Contains(strings.ToLower(text), "gen2")
	case current["offer"] == "aro4":
		second = strings.Contains(sku, "v2")
	default:
		second = !strings.Contains(sku, "gen1")
	}
	if second {
		return secondGeneration
	}
	return firstGeneration
}
