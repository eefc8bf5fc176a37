package firstboot

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// ReplaceAuthority puts another certificate authority (PEM) into a configuration
// of version 2 or 3. One with several authorities is refused: it is not known
// which is meant. The result is the very same bytes if nothing changes.
func ReplaceAuthority(data []byte, pem string) ([]byte, error) {
	if _, err := Version(data); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var c map[string]any
	if err := dec.Decode(&c); err != nil {
		return nil, err
	}
	ignition, _ := c["ignition"].(map[string]any)
	security, _ := ignition["security"].(map[string]any)
	tls, _ := security["tls"].(map[string]any)
	list, _ := tls["certificateAuthorities"].([]any)
	if len(list) != 1 {
		return nil, fmt.Errorf("it has %d certificate authorities, so it is not known which one is meant", len(list))
	}
	ca, ok := list[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("its certificate authority cannot be read")
	}
	source := authority(pem)
	if ca["source"] == source {
		return data, nil
	}
	ca["source"] = source
	delete(ca, "verification") // of the one before
	delete(ca, "compression")
	return json.Marshal(c)
}

// Pointer is the configuration that a machine is started with: it says where the
// real one is fetched, and whose certificate that server has. There is no secret
// in it but the address.
func Pointer(address, pem string) ([]byte, error) {
	return json.Marshal(map[string]any{"ignition": map[string]any{"version": Target,
		"config":   map[string]any{"merge": []any{map[string]any{"source": address}}},
		"security": map[string]any{"tls": map[string]any{"certificateAuthorities": []any{map[string]any{"source": authority(pem)}}}}}})
}

func authority(pem string) string {
	return "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(pem))
}

// Message is a configuration that writes a text where people look at a machine
// that does not join: on its console. spec is the major version that the machine
// reads, 2 or 3.
func Message(spec int, text string) ([]byte, error) {
	source := "data:," + url.PathEscape("\n"+strings.TrimSpace(text)+"\n\n")
	const at = "/etc/issue.d/99-refit-boot-image.issue"
	file := map[string]any{"path": at, "mode": 0o644, "overwrite": true, "contents": map[string]any{"source": source}}
	version := Target
	if spec == 2 {
		version, file["filesystem"] = "2.2.0", "root"
	} else if spec != 3 {
		return nil, fmt.Errorf("version %d of Ignition is not known", spec)
	}
	return json.Marshal(map[string]any{"ignition": map[string]any{"version": version}, "storage": map[string]any{"files": []any{file}}})
}
