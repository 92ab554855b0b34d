console.error("not built yet");
process.exit(1);
