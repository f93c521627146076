package ns

import (
	"fmt"
	"os"
	"strconv"
)

// Links lists the links dir/ID/ns/kind (namespaces(7)) of every process or thread that dir shows, which is
// /proc or /proc/self/task; kind is net or mnt. One that ends meanwhile is still listed. Unlike
// filepath.Glob it lists no folder below dir: the kernel keeps an entry for whatever has been listed there,
// and takes them apart when the process ends (fs/proc/base.c, proc_flush_pid).
func Links(dir, kind string) ([]string, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var links []string
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			links = append(links, dir+"/"+name+"/ns/"+kind)
		}
	}
	return links, nil
}
