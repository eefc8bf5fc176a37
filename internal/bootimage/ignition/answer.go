package ignition

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/refit-dev/refit/internal/componentversion"
)

// Client is what a request says of the machine's boot image.
type Client struct {
	// Ignition is true if it is Ignition that asks, CloudInit if it is cloud-init.
	Ignition, CloudInit bool
	// Version of Ignition itself, empty if it does not say.
	Version string
	// Spec is the newest major version of configurations that it reads.
	Spec int
}

var (
	accepted = regexp.MustCompile(`application/vnd\.coreos\.ignition\+json\s*;\s*version=(\d{1,3})\.\d{1,3}\.\d{1,3}`)
	agent    = regexp.MustCompile(`^Ignition/v?(\d{1,4}\.\d{1,4}\.\d{1,4})`)
)

// longestHeader is the longest header that ReadClient parses, in bytes.
const longestHeader = 1024

// ReadClient reads the headers. An Ignition that names no version is from the time when only
// version 2 existed.
func ReadClient(accept, userAgent string) Client {
	if len(accept) > longestHeader || len(userAgent) > longestHeader {
		return Client{}
	}
	c := Client{}
	if m := agent.FindStringSubmatch(userAgent); m != nil {
		c.Ignition, c.Version = true, m[1]
	}
	for _, m := range accepted.FindAllStringSubmatch(accept, -1) {
		c.Ignition = true
		if n := int(m[1][0] - '0'); len(m[1]) == 1 && n > c.Spec {
			c.Spec = n
		}
	}
	c.CloudInit = !c.Ignition && strings.HasPrefix(userAgent, "Cloud-Init/")
	c.Ignition = c.Ignition || strings.HasPrefix(userAgent, "Ignition/")
	if c.Ignition && c.Spec == 0 {
		c.Spec = 2
	}
	return c
}

// Pool is what machines of a pool must bring.
type Pool struct {
	Name string
	// Spec is the major version of its configuration.
	Spec int
	// CloudInit: it has a configuration for machines with cloud-init.
	CloudInit bool
	// MinimumIgnition is the least version of Ignition; empty for none.
	MinimumIgnition string
	// TooOld is what refit recorded of the image that the pool's machines start from, if that
	// is too old to join; else empty.
	TooOld string
	// Fix is what people read on the console.
	Fix string
}

// Actions.
const (
	// Serve the pool's configuration.
	AnswerConfig = "Serve"
	// ServeCloudInit gives what cloud-init reads.
	AnswerCloudInit = "ServeCloudInit"
	// Message: serve one with the reason in it.
	AnswerMessage = "Message"
	// Refuse with the reason.
	AnswerRefuse = "Refuse"
)

// Answer about a request.
type Answer struct {
	Action string
	// Spec of the message.
	Spec int
	Text string
	// Recorded: a refusal that is about the machine's boot image.
	Recorded bool
}

// DecideAnswer says what the machine is given.
func DecideAnswer(c Client, p Pool) Answer {
	if c.CloudInit && p.CloudInit {
		return answerCloudInit(p)
	}
	if c.CloudInit {
		return Answer{Action: AnswerRefuse, Text: "pool " + p.Name + " has no configuration for machines with cloud-init: put one under the key user-data of its Secret"}
	}
	if !c.Ignition {
		return Answer{Action: AnswerRefuse, Text: "this address gives machines their first-boot configuration; it is asked by Ignition, which says so in its headers"}
	}
	if why := tooOld(c, p); why != "" {
		return Answer{Action: AnswerMessage, Spec: min(max(c.Spec, 2), 3), Text: fmt.Sprintf(cannotJoin, p.Name, why, p.Fix)}
	}
	return Answer{Action: AnswerConfig}
}

const cannotJoin = "This machine cannot join pool %s: %s. %s"

// answerCloudInit answers cloud-init, whose headers say nothing about the image.
func answerCloudInit(p Pool) Answer {
	if p.TooOld != "" {
		return Answer{Action: AnswerRefuse, Text: fmt.Sprintf(cannotJoin, p.Name, p.TooOld, p.Fix), Recorded: true}
	}
	return Answer{Action: AnswerCloudInit}
}

// tooOld returns why an image with Ignition cannot join, empty if it can.
func tooOld(c Client, p Pool) string {
	if c.Spec != p.Spec {
		return fmt.Sprintf("its boot image reads configurations of version %d, and the pool's is of version %d", c.Spec, p.Spec)
	}
	if p.TooOld != "" || p.MinimumIgnition == "" {
		return p.TooOld
	}
	want, err := componentversion.ParseOS(p.MinimumIgnition)
	if err != nil {
		return "the pool's limit for boot images cannot be read"
	}
	have, err := componentversion.ParseOS(c.Version)
	if err != nil {
		return "it does not say of which version its boot image's Ignition is, and " + want.Text + " is the least"
	}
	if order, err := have.Compare(want); err != nil || order < 0 {
		return "its boot image is too old: Ignition " + have.Text + ", the least is " + want.Text
	}
	return ""
}
