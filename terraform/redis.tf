resource "google_redis_instance" "hangar" {
  name               = var.name
  region             = var.region
  location_id        = local.zone
  tier               = "STANDARD_HA"
  memory_size_gb     = var.redis_memory_gb
  redis_version      = "REDIS_7_2"
  authorized_network = google_compute_network.hangar.id
  connect_mode       = "PRIVATE_SERVICE_ACCESS"
  auth_enabled       = true

  # Nothing of a session may ever be evicted.
  redis_configs = {
    maxmemory-policy = "noeviction"
  }

  persistence_config {
    persistence_mode    = "RDB"
    rdb_snapshot_period = "ONE_HOUR"
  }

  depends_on = [google_service_networking_connection.services]
}
