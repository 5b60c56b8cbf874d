
// The theme that was chosen on another page; without a choice the style follows the system.
try {
  const mode = localStorage.getItem("mode");
  if (mode === "light" || mode === "dark") document.documentElement.dataset.theme = mode;
} catch { /* storage is closed to this page */ }
