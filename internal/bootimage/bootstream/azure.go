package bootstream

import "strings"

// Generations of Hyper-V, as stream metadata ends the names of its variants.
const (
	firstGeneration  = ".hyperVGen1"
	secondGeneration = ".hyperVGen2"
	freePlan         = "no-purchase-plan"
)

// Like chooses among several offers of Azure's marketplace, if the key names none:
// the one of the same publisher and offer, so that nobody pays for another product,
// and of the same generation of virtual hardware, without which a machine does not
// start. What is there (current attributes, text) may be an image that an installer
// has uploaded: that becomes the offer without a purchase plan. If none fits, the key
// stays as it is, and Find says what there is.
func (s *Stream) Like(k Key, current map[string]string, text string) Key {
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

// sameProduct: an offer of this publisher and offer; for what an installer uploaded
// the one without a purchase plan.
func sameProduct(i Image, plan string, current map[string]string, text string) bool {
	if current["publisher"] == "" {
		return plan == freePlan && strings.Contains(strings.ToLower(text), "/galleries/")
	}
	return i.Attributes["publisher"] == current["publisher"] && i.Attributes["offer"] == current["offer"]
}

// generationOf the hardware that an image is for: ARM has the second only;
// an uploaded image says it in its name, the free offer as -v2, and the paid ones
// are of the second unless they say -gen1.
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
