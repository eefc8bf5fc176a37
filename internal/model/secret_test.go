package model

import "testing"

// What a NodeConfig must not carry, and what only sounds like it.
func TestNodeSecret(t *testing.T) {
	for name, c := range map[string]struct {
		path, text string
		secret     bool
	}{
		"a private key":                     {"/etc/x", "-----BEGIN PRIVATE KEY-----\n", true},
		"a key of a kubeconfig":             {"/etc/x", "client-key-data: QUJD\n", true},
		"logins of registries":              {"/etc/x", `{"auths":{"r.example":{"auth":"dTpw"}}}`, true},
		"a place of passwords":              {"/etc/shadow", "", true},
		"logins of k0s's kubelet":           {"/var/lib/k0s/kubelet/config.json", "", true},
		"a token of a service account":      {"/etc/x", "token: eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJlLi4\n", true},
		"a token of a forge":                {"/etc/x", "url=https://x/?t=ghp_0123456789abcdefghijABCDEFGHIJ012345\n", true},
		"a cloud key":                       {"/etc/x", "aws_access_key_id = AKIAIOSFODNN7EXAMPLE\n", true},
		"a header of containerd's hosts":    {"/etc/containerd/certs.d/x/hosts.toml", "[host.header]\n  Authorization = [\"Basic dXNlcjpwYXNzd29yZA==\"]\n", true},
		"a proxy with a password":           {"/etc/x", "HTTPS_PROXY=http://user:hunter22@proxy.example:3128\n", true},
		"a password in a variable":          {"/etc/x", "export DB_PASSWORD='correct-horse'\n", true},
		"a password in YAML":                {"/etc/x", "  password: correct-horse\n", true},
		"the key of a wireless network":     {"/etc/NetworkManager/system-connections/w", "[wifi-security]\npsk=correct-horse\n", true},
		"a connection without one":          {"/etc/NetworkManager/system-connections/e", "[ipv4]\nmethod=auto\n", false},
		"settings of the SSH server":        {"/etc/ssh/sshd_config.d/x.conf", "PasswordAuthentication no\nPermitEmptyPasswords no\n", false},
		"a path to a password":              {"/etc/x", "password_file=/run/secrets/db\nPASSWORD=/run/secrets/db\n", false},
		"a variable instead of a password":  {"/etc/x", "password: ${DB_PASSWORD}\npassword: <from the vault>\n", false},
		"a placeholder that is empty":       {"/etc/x", "password=\n", false},
		"a comment about passwords":         {"/etc/x", "# the password: see the vault, it is long\n", false},
		"a PAM stack":                       {"/etc/pam.d/x", "password requisite pam_pwquality.so retry=3\n", false},
		"a certificate":                     {"/etc/x", "-----BEGIN CERTIFICATE-----\nMIIB\n", false},
		"a public key":                      {"/etc/x", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI a@b\n", false},
		"a mirror without credentials":      {"/etc/containerd/certs.d/x/hosts.toml", "server = \"https://r.example\"\n[host.\"https://m.example:5000\"]\n", false},
		"kernel settings":                   {"/etc/sysctl.d/x.conf", "kernel.keys.maxkeys = 2000\nnet.ipv4.tcp_fastopen_key = 0\n", false},
		"an IPv6 address with a port in it": {"/etc/x", "server=http://[fd00::1]:8080/a@b\n", false},
	} {
		if why := NodeSecret(c.path, []byte(c.text)); (why != "") != c.secret {
			t.Errorf("%s: %q", name, why)
		}
	}
}
