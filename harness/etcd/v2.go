package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// KeyV2 is a key of etcd's v2 API. The v2 API has its own store, apart from that of v3.
type KeyV2 struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// TTL is the remaining time to live, in seconds; 0 if the key does not expire.
	TTL int64 `json:"ttl"`
}

// v2Within is how long a request to the v2 API may take.
const v2Within = 5 * time.Second

// PutV2 sets a key of the v2 API. It expires after ttl, in whole seconds; 0 means never.
func (m *Member) PutV2(ctx context.Context, key, value string, ttl time.Duration) error {
	form := url.Values{"value": {value}}
	if ttl > 0 {
		form.Set("ttl", fmt.Sprint(int64(ttl.Seconds())))
	}
	_, err := m.requestV2(ctx, http.MethodPut, key, form)
	return err
}

// DeleteV2 deletes a key of the v2 API. A key that does not exist is not an error.
func (m *Member) DeleteV2(ctx context.Context, key string) error {
	_, err := m.requestV2(ctx, http.MethodDelete, key, nil)
	return err
}

// ListV2 lists the keys in a folder of the v2 API. It returns none if the folder does not exist.
func (m *Member) ListV2(ctx context.Context, folder string) ([]KeyV2, error) {
	raw, err := m.requestV2(ctx, http.MethodGet, folder, nil)
	if err != nil || raw == nil {
		return nil, err
	}
	var answer struct {
		Node struct{ Nodes []KeyV2 } `json:"node"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, fmt.Errorf("read etcd's v2 keys at %s: %w", folder, err)
	}
	return answer.Node.Nodes, nil
}

// requestV2 sends a request from the member's own machine, as Client does. It returns nil for a key that
// does not exist.
func (m *Member) requestV2(ctx context.Context, method, key string, form url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, v2Within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, m.Endpoint()+"/v2/keys"+key+"?quorum=true",
		strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("ask etcd's v2 API: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	transport := &http.Transport{DisableKeepAlives: true}
	if m.opts.Authority != nil {
		if transport.TLSClientConfig, err = m.opts.Authority.rootTLS(); err != nil {
			return nil, err
		}
	}
	transport.DialContext = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		err = m.opts.Machine.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return err
		})
		return conn, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask etcd's v2 API: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask etcd's v2 API: %w", err)
	case resp.StatusCode == http.StatusNotFound && strings.Contains(string(raw), "errorCode"):
		return nil, nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return nil, fmt.Errorf(
			"etcd's v2 API answers %s to %s %s: is this etcd 3.4 or 3.5, which still have it? %s",
			resp.Status,
			method,
			key,
			strings.TrimSpace(string(raw)),
		)
	}
	return raw, nil
}
