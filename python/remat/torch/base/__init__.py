"""What every layer uses: errors, the step graph, helpers of fx graphs, the allocator trace."""
